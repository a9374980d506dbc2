defmodule Mix.Tasks.AshAgent.Verify do
  @shortdoc "Verifies who built a precompiled library or a package"

  @moduledoc """
  Verifies that a file of a release was built by the release workflow of a repository, from a tag.

      mix ash_agent.verify libash_agent_context_nif-v0.1.0-nif-2.15-x86_64-unknown-linux-gnu.so.tar.gz \\
        --bundle x86_64-unknown-linux-gnu.sigstore.json --repository someone/ash_agent_context

  The bundle is the attestation that lies beside the file in the release, or one that `gh attestation download` gives. The task needs no
  network and no other program. It checks the file's digest, the signature of the statement that names it, that its certificate was given to this
  workflow by Sigstore, and that Sigstore's log signed a time at which the certificate was valid.

  It does not check that the entry is in the log's tree, whether a log of certificates has seen the certificate, or whether Sigstore still
  trusts the keys that this version of the package has: `gh attestation verify` does all of that, with a network. Attestations
  of private repositories, and those that a log of Sigstore's second generation keeps, have no time that is signed in this way, and are refused.
  And it is the package that checks itself: if you do not trust the package, use `gh`.

  ## Options

    * `--bundle FILE` - the attestation. Defaults to the file's name with `.sigstore.json` after it.
    * `--repository OWNER/NAME` - the repository on GitHub. Required.
    * `--ref REF` - what the workflow ran for, such as `refs/tags/v0.1.0`. Defaults to any tag.
    * `--workflow FILE` - defaults to `release.yml`.
    * `--trusted-root FILE` - a `trusted_root.json` instead of the keys of Sigstore's public instance.
  """

  use Mix.Task

  alias AshAgent.Provenance

  @options [
    bundle: :string,
    repository: :string,
    ref: :string,
    workflow: :string,
    trusted_root: :string
  ]

  @usage "usage: mix ash_agent.verify FILE --repository OWNER/NAME, with [--bundle FILE] [--ref REF] [--workflow FILE] [--trusted-root FILE]"

  @impl true
  def run(args) do
    case OptionParser.parse(args, strict: @options) do
      {opts, [file], []} -> verify(file, Map.new(opts))
      {_opts, _files, [{option, _value} | _]} -> Mix.raise("wrong option #{option}; #{@usage}")
      {_opts, _files, []} -> Mix.raise("expected one file; #{@usage}")
    end
  end

  defp verify(file, %{repository: repository} = opts) do
    {:ok, _apps} = Application.ensure_all_started(:public_key)
    bundle = read!(opts[:bundle] || file <> ".sigstore.json")

    expected = %{
      repository: repository,
      workflow: opts[:workflow] || "release.yml",
      ref: opts[:ref]
    }

    case file |> read!() |> Provenance.verify(bundle, expected, roots(opts[:trusted_root])) do
      {:ok, found} ->
        Mix.shell().info("""
        #{file} was built by #{found.workflow}
        from the commit #{found.commit}, signed at #{found.signed_at}.
        Not checked: the log's tree, logs of certificates, whether Sigstore has withdrawn a key.\
        """)

      {:error, sentence} ->
        Mix.raise("#{file} is not verified: #{sentence}.")
    end
  end

  defp verify(_file, _opts), do: Mix.raise("--repository is missing; #{@usage}")

  defp roots(nil), do: Provenance.public_roots()

  defp roots(file) do
    case file |> read!() |> Provenance.read_roots() do
      {:ok, roots} -> roots
      {:error, sentence} -> Mix.raise("#{file}: #{sentence}.")
    end
  end

  defp read!(file) do
    case File.read(file) do
      {:ok, bytes} -> bytes
      {:error, reason} -> Mix.raise("#{file} cannot be read: #{:file.format_error(reason)}")
    end
  end
end
