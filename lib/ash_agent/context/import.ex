defmodule AshAgent.Context.Import do
  @moduledoc """
  Reads foreign histories: requests to providers, and lists of messages.
  """

  use AshAgent.Arguments, provider: {:in, AshAgent.Context.Requests.providers()}

  alias AshAgent.Context
  alias AshAgent.Context.{Error, Native, Options, Reply}

  import AshAgent.Context.Requests, only: [is_provider: 1]

  @typedoc """
  The repairs that an import made, and the fields of the request that are not part of the conversation.

  A repair has the 0-based position of the `message` (or content, or item) in the given list:

    * `:dropped_empty_message` - the message is empty
    * `:dropped_orphan_result` - a result with this `id` has no call
    * `:dropped_duplicate_result` - a second result for the call with this `id`
    * `:moved_result` - a result did not directly follow its call
    * `:renamed_call` - a call had the `id` of another call of its message; it is now called `to`
    * `:synthesised_result` - a call without a result was followed by something else; its result is now the error "interrupted"
    * `:corrected_type` - an image, recording, film or file is of another media type than it says: it is sent as what it is, `to`

  `rest` has the other fields of the request, as they were given.
  """
  @type import_report :: %{
          repairs: [
            %{
              required(:repair) => atom(),
              required(:message) => non_neg_integer(),
              optional(:id) => String.t(),
              optional(:to) => String.t()
            }
          ],
          rest: map()
        }

  @type imported :: {:ok, Context.t(), import_report()} | {:error, Error.t()}

  @doc """
  Makes a context from a request to a provider, and returns `{:ok, context, report}` or `{:error, error}`.

  `body` is a map with string or atom keys, or JSON text. Fields other than the messages (model, tools, limits) are
  returned in `report.rest`, for `AshAgent.Context.encode_request/3`. A history that the provider would refuse is repaired, and
  `report.repairs` lists how, see `t:import_report/0`; a valid history needs no repair. Calls at the end that have no
  results are pending.

  For the same provider, `AshAgent.Context.request/3` returns the messages as they were, including details that a context has no place for,
  such as cache breakpoints. It follows the provider's rules instead where a message was repaired, where calls are
  pending, and where the provider is known to refuse the message (blank texts, ids or names it cannot take). One shape
  changes its form: an `input` of OpenAI Responses that is a string becomes a list with one user message.

  Blocks that no other provider knows become parts of the type `:provider_block`. The context keeps the messages in both
  forms and is about twice as large as one built with the `add_*` functions.

  The error's reason is `{:invalid, path, expected}` with the path into the body, or `{:too_deep, limit}`. Costs O(n).

  ## Options

  #{Options.docs(:import)}

  ## Examples

      iex> body = %{"model" => "m1", "messages" => [%{"role" => "user", "content" => "Hello!"}]}
      iex> {:ok, context, report} = AshAgent.Context.Import.from_request(body, :anthropic)
      iex> AshAgent.Context.to_messages(context)
      [%{role: :user, content: "Hello!"}]
      iex> report
      %{repairs: [], rest: %{"model" => "m1"}}

      iex> {:error, error} = AshAgent.Context.Import.from_request(%{messages: [%{role: "user", content: 1}]}, :openai_chat)
      iex> error.reason
      {:invalid, [:messages, 0, :content], "content: text or a list of parts"}

      iex> body = ~s({"contents": [{"role": "user", "parts": [{"text": "Hello!"}]}]})
      iex> AshAgent.Context.Import.from_request!(body, :gemini) |> AshAgent.Context.to_messages()
      [%{role: :user, content: "Hello!"}]
  """
  @doc since: "0.1.0"
  @spec from_request(map() | binary(), Context.provider(), keyword()) :: imported()
  def from_request(body, provider, opts \\ [])
      when (is_map(body) or is_binary(body)) and is_provider(provider) do
    opts = Options.validate!(opts, :import)
    body |> Native.import_request(provider, opts[:id], opts[:at]) |> to_report()
  end

  @doc "Like `from_request/3`, but returns the context alone or raises `AshAgent.Context.Error`."
  @doc since: "0.1.0"
  @spec from_request!(map() | binary(), Context.provider(), keyword()) :: Context.t()
  def from_request!(body, provider, opts \\ []),
    do: body |> from_request(provider, opts) |> bang!()

  @doc """
  Makes a context from a list of messages, and returns `{:ok, context, report}` or `{:error, error}`.

  Messages are in OpenAI's chat format or in the form of `AshAgent.Context.to_messages/1`, in any mixture, with string or atom keys. Keys
  that neither format has are ignored. Repairs, errors and options are those of `from_request/3`. Messages that look like another
  provider's or program's are an error that names the form and what reads it, see the guide
  [Bring my history](history.html).

  ## Examples

      iex> {:ok, context, report} =
      ...>   AshAgent.Context.Import.from_messages([
      ...>     %{role: "user", content: "What's the weather?"},
      ...>     %{role: "assistant", content: nil, tool_calls: [
      ...>       %{id: "a", type: "function", function: %{name: "get_weather", arguments: "{}"}}
      ...>     ]},
      ...>     %{role: "user", content: "Hello?"}
      ...>   ])
      iex> AshAgent.Context.get_iteration(context, 1).tool_calls
      [%{id: "a", name: "get_weather", arguments: %{}, result: {:error, "interrupted"}}]
      iex> report.repairs
      [%{repair: :synthesised_result, id: "a", message: 1}]

      iex> context = AshAgent.Context.Import.from_messages!([%{"role" => "user", "content" => "Hello!"}])
      iex> context.current_iteration
      1
  """
  @doc since: "0.1.0"
  @spec from_messages([map()], keyword()) :: imported()
  def from_messages(messages, opts \\ []) when is_list(messages) do
    opts = Options.validate!(opts, :import)
    messages |> Native.import_messages(opts[:id], opts[:at]) |> to_report()
  end

  @doc "Like `from_messages/2`, but returns the context alone or raises `AshAgent.Context.Error`."
  @doc since: "0.1.0"
  @spec from_messages!([map()], keyword()) :: Context.t()
  def from_messages!(messages, opts \\ []), do: messages |> from_messages(opts) |> bang!()

  defp to_report({:ok, {handle, repairs, rest}}),
    do: {:ok, Reply.put!({:ok, handle}), %{repairs: repairs, rest: rest}}

  defp to_report({:error, _reason} = error), do: Reply.put_at(error)

  defp bang!({:ok, context, _report}), do: context
  defp bang!({:error, error}), do: raise(error)
end
