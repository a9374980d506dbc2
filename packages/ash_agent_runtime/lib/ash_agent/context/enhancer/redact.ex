defmodule AshAgent.Context.Enhancer.Redact do
  @schema AshAgent.Options.schema([
            {:patterns, {:list, :any}, [type_doc: "a list", required: true],
             "what to mask, see below."},
            {:replacement, :string, [default: "[redacted]"],
             "replaces the matches of patterns that have no replacement of their own."}
          ])

  @moduledoc """
  An enhancer that masks the matches of patterns in all texts of the view.

      iex> alias AshAgent.Context
      iex> redact = {Context.Enhancer.Redact, patterns: [:email, {~r/\\bAnn\\b/, "[name]"}]}
      iex> {:ok, masked, _report} = Context.Enhancer.run(Context.new("Ann is ann@example.com."), [redact])
      iex> Context.to_messages(masked)
      [%{role: :user, content: "[name] is [redacted]."}]
      iex> Context.to_messages(masked, view: :log)
      [%{role: :user, content: "Ann is ann@example.com."}]

  `AshAgent.Context.View.put_masks/3` describes what is masked, and where. Existing masks stay; if a pattern is already masked,
  its replacement is updated. Masks of an earlier run stay even when their pattern is no longer given, until
  `AshAgent.Context.View.put_masks/3` removes them.

  ## Options

  #{AshAgent.Options.docs(@schema)}

  A pattern is

    * one of the names below
    * a regular expression, as a string or as a `Regex` without options, in the syntax of `AshAgent.Context.View.put_masks/3`; pass
      literal text through `Regex.escape/1` first
    * `{pattern, replacement}` with a name or an expression

  Anything else raises, as in `AshAgent.Context.View.put_masks/3`, before the first enhancer runs.

  ## Names

    * `:email` - addresses such as `ann@mail.example.com`; also texts that only look like one, such as `git@github.com` or
      `logo@2x.png`
    * `:credit_card` - numbers of Visa, Mastercard, American Express and Discover, in one piece or in groups with spaces or
      hyphens. The check digit is not verified: other numbers of 15 or 16 digits with the same beginning match as well, and so can
      the digits after the point of a long fraction.
    * `:ipv4` - addresses of the internet protocol, version 4; also version numbers with four parts
    * `:api_key` - keys and tokens with a recognisable form: of Anthropic, AWS, GitHub, GitLab, Google, Groq, Hugging Face, NVIDIA, OpenAI,
      OpenRouter, Perplexity, Replicate, Slack, Stripe and xAI, JWTs, what comes after `Bearer`, and the fields of an address that hold
      one, such as `?api_key=`

  There are no patterns for phone numbers and people's names, since no pattern can tell them from other numbers and words.

  ## Limits

  Patterns find text of a certain form and nothing else, and match within a single text: something spread over two messages is not
  found. The log and stored conversations contain everything. Patterns are stored with the view: don't put a secret into one.
  """

  @behaviour AshAgent.Context.Enhancer

  alias AshAgent.Context
  alias AshAgent.Options

  # A word boundary of ASCII: Unicode's is slow in texts that are not ASCII.
  @edge ~S"(?-u:\b)"
  @byte "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"

  # The first four digits of Visa, Mastercard and Discover, and of American Express, which has other groups.
  @card "(?:4[0-9]{3}|5[1-5][0-9]{2}|2(?:22[1-9]|2[3-9][0-9]|[3-6][0-9]{2}|7[01][0-9]|720)|6(?:011|4[4-9][0-9]|5[0-9]{2}))"
  @amex "3[47][0-9]{2}"
  @cards [
    @card <> "(?:[0-9]{12}|(?: [0-9]{4}){3}|(?:-[0-9]{4}){3})",
    @amex <> "(?:[0-9]{11}| [0-9]{6} [0-9]{5}|-[0-9]{6}-[0-9]{5})"
  ]

  @patterns %{
    email: "[A-Za-z0-9._%+-]+@(?:[A-Za-z0-9-]+[.])+[A-Za-z]{2,}" <> @edge,
    credit_card: @edge <> "(?:" <> Enum.join(@cards, "|") <> ")" <> @edge,
    ipv4: @edge <> "(?:" <> @byte <> "[.]){3}" <> @byte <> @edge,
    api_key: AshAgent.SecretForms.pattern(@edge)
  }
  @names @patterns |> Map.keys() |> Enum.sort()

  @impl true
  def prepare(opts) do
    opts = Options.validate!(opts, @schema)
    masks = Enum.map(opts[:patterns], &mask!(&1, opts[:replacement]))
    # The core checks them, and gives expressions as text.
    [masks: Context.View.view(Context.View.put_masks(Context.new(""), masks)).masks]
  end

  defp mask!({pattern, replacement}, _default), do: {pattern!(pattern), replacement}
  defp mask!(pattern, default), do: {pattern!(pattern), default}

  defp pattern!(name) when is_atom(name) do
    Map.get(@patterns, name) ||
      AshAgent.Caller.refuse!(
        "unknown pattern #{inspect(name)}, known names are: #{inspect(@names)}"
      )
  end

  defp pattern!(expression), do: expression

  @impl true
  def enhance(%Context{} = context, _needs, opts) do
    there = Context.View.view(context).masks

    masks = Enum.reduce(opts[:masks], there, &List.keystore(&2, elem(&1, 0), 0, &1))

    {:ok, if(masks == there, do: context, else: Context.View.put_masks(context, masks))}
  end
end
