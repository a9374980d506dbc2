# What needs a library that is not here.
libraries = [ash: Ash, finch: Finch, jason: Jason, json: JSON, req: Req]
missing = for {tag, library} <- libraries, not Code.ensure_loaded?(library), do: tag

# Generous, because the property tests keep both cores of a small machine busy beside the others.
ExUnit.start(assert_receive_timeout: 20_000, exclude: missing)
