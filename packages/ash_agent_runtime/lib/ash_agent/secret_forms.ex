defmodule AshAgent.SecretForms do
  @moduledoc false

  # What keys and tokens look like. All that hides them by their form reads this table: masks, cassettes, the log and errors.

  @forms [
    # Providers of models.
    "sk-[A-Za-z0-9]{20,}",
    "sk-(?:ant|proj|svcacct|admin|or)-[A-Za-z0-9_-]{24,}",
    "(?:gsk|hf|r8)_[A-Za-z0-9]{20,}",
    "(?:xai|pplx|nvapi)-[A-Za-z0-9_-]{20,}",
    # Clouds, code hosts, chats and payments.
    "(?:AKIA|ASIA)[0-9A-Z]{16}EDGE",
    "AIza[A-Za-z0-9_-]{30,}",
    "ya29[.][A-Za-z0-9_-]{16,}",
    "gh[pousr]_[A-Za-z0-9]{20,}",
    "github_pat_[A-Za-z0-9_]{20,}",
    "glpat-[A-Za-z0-9_-]{16,}",
    "xox[abeprs]-[A-Za-z0-9-]{10,}",
    "[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
    "whsec_[A-Za-z0-9+/_-]{16,}",
    # JWTs, and what a header says.
    "eyJ[A-Za-z0-9_-]{10,}[.][A-Za-z0-9_-]{10,}[.][A-Za-z0-9_-]{10,}",
    "Bearer [A-Za-z0-9._~+/-]{16,}"
  ]

  # Fields of a query. JSON may write the sign between them as an escape.
  @fields "key|api[_-]?key|apiKey|token|access_token|refresh_token|id_token|auth|secret|client_secret|password|sig|signature|" <>
            "X-(?:Amz|Goog)-(?:Signature|Credential|Security-Token)"
  @query ~S"(?:[?&]|\\u0026)(?:" <> @fields <> ~S")=[A-Za-z0-9._~+/%-]{7,}[A-Za-z0-9=_/-]"

  @pattern "(?:EDGE(?:#{Enum.join(@forms, "|")})|#{@query})"
  @regex @pattern |> String.replace("EDGE", "\\b") |> Regex.compile!()

  @doc "Returns an expression in the syntax of Rust and of PCRE, with an edge of words as that syntax writes it."
  def pattern(edge), do: String.replace(@pattern, "EDGE", edge)

  @doc "Replaces secrets, of addresses without the names of their fields."
  def replace(text, fun) do
    Regex.replace(@regex, text, fn
      <<first, _::binary>> = field when first in ~c"?&\\" ->
        [name, value] = String.split(field, "=", parts: 2)
        name <> "=" <> fun.(value)

      secret ->
        fun.(secret)
    end)
  end
end
