defmodule AshAgent.Response do
  @moduledoc """
  A provider's answer, whole or as a stream of bytes: an immutable value, held in Rust behind a handle.

      iex> alias AshAgent.{Context, Response}
      iex> response = Response.new(:openai_chat)
      iex> {:ok, response, events} = Response.feed(response, ~s(data: {"choices":[{"delta":{"content":"Hel"}}]}\\n\\nda))
      iex> events
      [{:text, 0, "Hel"}]
      iex> {:ok, response, events} =
      ...>   Response.feed(response, ~s(ta: {"choices":[{"delta":{"content":"lo!"},"finish_reason":"stop"}]}\\n\\ndata: [DONE]\\n\\n))
      iex> events
      [{:text, 0, "lo!"}, {:finish, :stop}]
      iex> response.state
      :complete
      iex> {:ok, context} = "Hi" |> Context.new() |> Context.add_response(response)
      iex> Context.to_messages(context)
      [%{role: :user, content: "Hi"}, %{role: :assistant, content: "Hello!"}]

  `feed/2` takes the bytes of an HTTP body as they arrive, in chunks that may end anywhere: within a character, a line or a binary
  frame. It reads the streams and the whole answers of every provider in `t:AshAgent.Context.provider/0`, and of servers with the
  same API. `decode/3` reads a whole answer.

  ## States

    * `:open` - there is more to come
    * `:queued` - the provider is working on it in the background, and returns it when asked again, see below
    * `:complete` - everything has arrived. For some providers, only the end of the body completes a response: call `finish/1`
    * `:failed` - the provider reported an error, or sent something that cannot be read; see `error/1`
    * `:interrupted` - you called `interrupt/2`: nothing more will come

  When a response is complete or interrupted, add it to a conversation with `AshAgent.Context.add_response/3`. A response that broke
  off is kept with all its text so far, marked with `state: :interrupted`, and without signatures and ids of incomplete parts, so
  that the next request is valid.

  ## Answers in the background

  OpenAI Responses answers a request with `background: true` at once, with a response that is `queued` or `in_progress`. It has
  no content yet, but `id/1` and `model/1` return what you need to ask for it again, with `GET /responses/<id>`:

      iex> body = ~s({"object":"response","id":"resp_1","model":"gpt-5","status":"queued","output":[]})
      iex> {:ok, response} = AshAgent.Response.decode(:openai_responses, body)
      iex> {response.state, AshAgent.Response.id(response), AshAgent.Response.model(response)}
      {:queued, "resp_1", "gpt-5"}

  ## Tool calls

  A call is complete when the *stream* says so, never because its arguments parse: the beginning of longer arguments may be
  valid JSON as well. A call that broke off is never pending and never executed, and neither is a complete one whose answer was refused,
  filtered or malformed. In the conversation, its result is an error that tells the model what happened.

  ## Events

  `feed/2` and `finish/1` return the new events, see `t:event/0`. Texts never end within a character. All texts of one part, joined
  in order, are that part of the message. If a provider repeats a text as a whole and it differs, the whole one is kept.

  ## Sharing and lifetime

  Feeding a response returns a new one that shares everything with the old. The cost depends only on the new bytes, and you can feed
  the old one differently. A response works only on the node that made it and cannot be stored: add it to a context instead.

  ## Limits

  A response has at most `:max_bytes`, see `new/2`. Its documents are at most 200 levels deep, and arguments 256. Bytes from a
  provider never create an atom.
  """

  use AshAgent.Arguments, provider: {:in, AshAgent.Context.Requests.providers()}

  alias AshAgent.Context
  alias AshAgent.Context.Native
  alias AshAgent.Response.Error

  @enforce_keys [:ref, :provider, :state]
  defstruct [:ref, :provider, :state]

  @typedoc "`state` and `provider`, `nil` for that of `from_message/1`, may be read and matched on. `ref` is private."
  @type t :: %__MODULE__{ref: reference(), provider: Context.provider() | nil, state: state()}

  @typedoc """
  A message to use instead of a response, see `from_message/1`. All keys are optional, and further keys are ignored.

    * `:content` - a string, a list of parts, or `nil`
    * `:tool_calls` - a list of `t:AshAgent.Context.tool_call/0`
    * `:usage` - a report on tokens as in `AshAgent.Context.Tokens.add_token_usage/3`; a report that is not valid is left out
    * `:finish_reason` - why the model stopped, see `t:finish_reason/0`, or any other word as a string
    * `:model` - the name of the model that answered
  """
  @type message :: %{
          optional(:content) => Context.content() | nil,
          optional(:tool_calls) => [Context.tool_call()] | nil,
          optional(:usage) => map() | nil,
          optional(:finish_reason) => finish_reason() | String.t() | nil,
          optional(:model) => String.t() | nil,
          optional(atom()) => term()
        }

  @type state :: :open | :queued | :complete | :failed | :interrupted

  @typedoc """
  Why the model stopped.

    * `:stop` - the answer is complete
    * `:tool_calls` - it wants to call tools, whatever the provider's word for that is
    * `:length` - it reached a token limit
    * `:content_filter` - a filter of the provider stopped it
    * `:refusal` - it refuses to answer
    * `:pause` - it continues if you send its answer back. `AshAgent.Context.add_response/3` opens the next iteration, and a run asks again
    * `:error` - something failed on the provider's side, such as a malformed call, or its word is not known

  The calls of an answer that ended with `:content_filter`, `:refusal` or `:error` are never pending.
  """
  @type finish_reason ::
          :stop | :tool_calls | :length | :content_filter | :refusal | :pause | :error

  @typedoc """
  An event of a response.

    * `{:text, part, text}`, `{:thinking, part, text}` - more of a text; `part` is its 0-based position in the message
    * `{:tool_call_started, position, name}` - a call; `position` is its 0-based position among the message's calls
    * `{:tool_call_arguments, position, json}` - more of the text of its arguments, if they come in pieces
    * `{:tool_call, call}` - a complete call, as `t:AshAgent.Context.tool_call/0`
    * `{:part, part}` - a part that came as a whole, as `t:AshAgent.Context.part/0`
    * `{:usage, map}` - the tokens that the provider has counted so far; a later one replaces it
    * `{:finish, reason}` - why the model stopped
    * `{:error, error}` - the response failed; this is the last event
  """
  @type event ::
          {:text, non_neg_integer(), String.t()}
          | {:thinking, non_neg_integer(), String.t()}
          | {:tool_call_started, non_neg_integer(), String.t()}
          | {:tool_call_arguments, non_neg_integer(), String.t()}
          | {:tool_call, Context.tool_call()}
          | {:part, Context.part()}
          | {:usage, map()}
          | {:finish, finish_reason()}
          | {:error, Error.t()}

  @typedoc """
  Something that a model says, see `push/2`.

    * `{:text, text}`, `{:thinking, text}` - more of a text
    * `{:tool_call_started, number, id, name}` - a call, under a number of its own
    * `{:tool_call_arguments, number, json}` - more of the text of its arguments
    * `{:usage, map}` - the tokens that were counted so far, as in `AshAgent.Context.Tokens.add_token_usage/3`
    * `{:finish, reason}` - why the model stopped, or any other word as a string; this completes the response
  """
  @type delta ::
          {:text, String.t()}
          | {:thinking, String.t()}
          | {:tool_call_started, non_neg_integer(), id :: String.t(), name :: String.t()}
          | {:tool_call_arguments, non_neg_integer(), String.t()}
          | {:usage, map()}
          | {:finish, finish_reason() | String.t()}

  @providers AshAgent.Context.Requests.providers()

  @max_bytes 33_554_432

  @schema AshAgent.Options.schema([
            {:model, {:or, [:string, nil]}, [default: nil],
             "the model that was asked. Thinking is kept with this name, and sent back only to this model."},
            {:framing, {:in, [nil, :sse, :ndjson, :aws_event_stream, :json]}, [default: nil],
             "how the body is framed, if the content type does not say so. `:json` is a whole answer, or Gemini's list of them."},
            {:content_type, {:or, [:string, nil]}, [default: nil],
             "the body's content type, which determines the framing. Unknown types are ignored: the framing is then the provider's " <>
               "own, and a JSON body instead of server-sent events is recognised."},
            {:max_bytes, :pos_integer, [default: @max_bytes],
             "how many bytes the response may have."}
          ])

  @doc """
  Starts to read a provider's response, and returns an open one. Without a provider, it takes what you `push/2`.

  ## Options

  #{AshAgent.Options.docs(@schema)}

  ## Examples

      iex> AshAgent.Response.new(:anthropic).state
      :open
  """
  @doc since: "0.1.0"
  @spec new(Context.provider() | nil, keyword()) :: t()
  def new(provider, opts \\ []) when provider in [nil | @providers] and is_list(opts) do
    opts = AshAgent.Options.validate!(opts, @schema)
    open(provider, Map.new(opts))
  end

  @doc false
  # For callers who have checked the options.
  def open(provider, opts) do
    {:ok, ref} = opts |> Map.put(:provider, provider) |> Native.response_new()
    %__MODULE__{ref: ref, provider: provider, state: :open}
  end

  @doc """
  Reads a whole response, and returns `{:ok, response}` or `{:error, error}`.

  `body` is the JSON text of the HTTP body, or the map that a JSON library decoded from it. A provider's error in it is returned as
  `{:error, error}`, and so is any other body. Takes the options of `new/2`. Costs O(n).

  ## Examples

      iex> body = ~s({"message": {"role": "assistant", "content": "Hello!"}, "done": true, "done_reason": "stop"})
      iex> {:ok, response} = AshAgent.Response.decode(:ollama, body)
      iex> AshAgent.Response.message(response)
      %{role: :assistant, content: "Hello!"}

      iex> body = %{"type" => "error", "error" => %{"type" => "overloaded_error", "message" => "Overloaded"}}
      iex> {:error, error} = AshAgent.Response.decode(:anthropic, body)
      iex> {error.reason, error.retryable?}
      {{:provider, "overloaded_error"}, true}
  """
  @doc since: "0.1.0"
  @spec decode(Context.provider(), binary() | map() | list(), keyword()) ::
          {:ok, t()} | {:error, Error.t()}
  def decode(provider, body, opts \\ [])

  def decode(provider, body, opts)
      when provider in @providers and is_binary(body) and is_list(opts) do
    opts =
      opts |> AshAgent.Options.validate!(@schema) |> Map.new() |> Map.put(:provider, provider)

    case Native.response_decode(body, opts) do
      {:ok, {ref, state, []}} -> {:ok, %__MODULE__{ref: ref, provider: provider, state: state}}
      {:error, {:response, fault}} -> {:error, Error.new(fault)}
    end
  end

  def decode(provider, body, opts) when is_map(body) or is_list(body),
    do: decode(provider, Context.JSON.encode(body), opts)

  @doc """
  Makes a complete response from a message, and returns `{:ok, response}` or `{:error, error}`.

  Use it for your own models, which have no HTTP body of a provider. Nothing is added or translated: terms in arguments stay as
  they are, and a call without an id gets one in the context. For content or calls that a context cannot hold, the error is an
  `AshAgent.Context.Error`. Costs O(n).

  ## Examples

      iex> {:ok, response} = AshAgent.Response.from_message(%{tool_calls: [%{id: "a", name: :add, arguments: %{a: 1}}]})
      iex> AshAgent.Response.message(response)
      %{role: :assistant, content: nil, tool_calls: [%{id: "a", name: :add, arguments: %{a: 1}}]}

      iex> {:error, error} = AshAgent.Response.from_message(%{content: 5})
      iex> error.reason
      {:invalid, [], "content: text, nil or a list of parts"}
  """
  @doc since: "0.1.0"
  @spec from_message(message()) :: {:ok, t()} | {:error, Context.Error.t()}
  def from_message(%{} = message) when not is_struct(message) do
    given = %{
      content: message[:content],
      tool_calls: message[:tool_calls],
      usage: message[:usage],
      model: text_or_nil(message[:model]),
      finish_reason: word(message[:finish_reason])
    }

    case Native.response_from_message(given) do
      {:ok, {ref, state, []}} -> {:ok, %__MODULE__{ref: ref, provider: nil, state: state}}
      {:error, reason} -> {:error, %Context.Error{reason: reason}}
    end
  end

  defp text_or_nil(text), do: if(is_binary(text) and String.valid?(text), do: text)

  defp word(word) when is_atom(word) and word != nil, do: Atom.to_string(word)
  defp word(word), do: text_or_nil(word)

  @doc """
  Feeds the next bytes of the HTTP body, and returns `{:ok, response, events}` or `{:error, error}`.

  The cost depends only on the new bytes. Chunks of up to 32 KB are read on a normal scheduler.

  `{:error, error}` means that these bytes are not valid, exceed a limit, or that the response was interrupted. The response you have
  stays as it was, and `interrupt/2` keeps its contents. If valid bytes came before the invalid ones, you get a response that
  includes them, in the state `:failed`, with `{:error, error}` as the last event. The same happens if the provider itself reports an
  error. Bytes after the end are ignored.

  ## Examples

      iex> response = AshAgent.Response.new(:ollama)
      iex> {:ok, _response, events} = AshAgent.Response.feed(response, ~s({"message":{"content":"Hi"},"done":false}\\n))
      iex> events
      [{:text, 0, "Hi"}]
      iex> {:error, error} = AshAgent.Response.feed(response, "{oops}\\n")
      iex> error.reason
      {:invalid_response, "not JSON: key must be a string, at byte 1"}
  """
  @doc since: "0.1.0"
  @spec feed(t(), binary()) :: {:ok, t(), [event()]} | {:error, Error.t()}
  def feed(%__MODULE__{ref: ref} = response, bytes)
      when is_binary(bytes) and not (response.provider == nil and response.state == :open),
      do: ref |> Native.response_feed(bytes) |> news(response)

  @doc """
  Adds a model's next words to a response without a provider, and returns the same as `feed/2`.

  Use it for streams that another library reads. The calls whose arguments are complete when `{:finish, reason}` comes are
  complete as well; the others broke off. Deltas after the end are ignored. Costs O(n) of the deltas.

  ## Examples

      iex> response = AshAgent.Response.new(nil)
      iex> {:ok, response, events} = AshAgent.Response.push(response, [{:text, "Hel"}, {:text, "lo!"}])
      iex> events
      [{:text, 0, "Hel"}, {:text, 0, "lo!"}]
      iex> {:ok, response, [finish: :stop]} = AshAgent.Response.push(response, [{:finish, :stop}])
      iex> {response.state, AshAgent.Response.text(response)}
      {:complete, "Hello!"}
  """
  @doc since: "0.1.0"
  @spec push(t(), [delta()]) :: {:ok, t(), [event()]} | {:error, Error.t()}
  def push(%__MODULE__{ref: ref, provider: nil} = response, deltas) when is_list(deltas) do
    deltas =
      Enum.map(deltas, fn
        {:finish, reason} -> {:finish, word(reason)}
        delta -> delta
      end)

    case Native.response_push(ref, deltas) do
      {:error, {:invalid, [], _words}} ->
        AshAgent.Caller.refuse!("expected a list of deltas, see t:AshAgent.Response.delta/0")

      pushed ->
        news(pushed, response)
    end
  end

  @doc """
  Tells the response that the body has ended, and returns `{:ok, response, events}` or `{:error, error}`.

  For some providers, this completes the response. If the body ended before the response was complete, the error's reason is
  `:incomplete`, and the response you have stays as it was.

  ## Examples

      iex> response = AshAgent.Response.new(:anthropic)
      iex> {:error, error} = AshAgent.Response.finish(response)
      iex> {error.reason, error.retryable?}
      {:incomplete, true}
  """
  @doc since: "0.1.0"
  @spec finish(t()) :: {:ok, t(), [event()]} | {:error, Error.t()}
  def finish(%__MODULE__{ref: ref} = response),
    do: ref |> Native.response_finish() |> news(response)

  @doc """
  Ends the response, and returns it in the state `:interrupted`. A complete response stays complete.

  `reason` is any term and is kept with the message, see `AshAgent.Context.fetch_message/2`.

  ## Examples

      iex> response = AshAgent.Response.new(:ollama)
      iex> {:ok, response, _events} = AshAgent.Response.feed(response, ~s({"message":{"content":"Once upon"},"done":false}\\n))
      iex> response = AshAgent.Response.interrupt(response, :cancelled)
      iex> AshAgent.Response.message(response)
      %{role: :assistant, content: "Once upon", state: :interrupted}
  """
  @doc since: "0.1.0"
  @spec interrupt(t(), term()) :: t()
  def interrupt(%__MODULE__{ref: ref} = response, reason) do
    case Native.response_interrupt(ref, reason) do
      {:ok, {ref, state, []}} -> %{response | ref: ref, state: state}
      {:error, reason} -> raise Context.Error, reason: reason
    end
  end

  @doc """
  Returns the state.

  ## Examples

      iex> AshAgent.Response.state(AshAgent.Response.new(:gemini))
      :open
  """
  @doc since: "0.1.0"
  @spec state(t()) :: state()
  def state(%__MODULE__{state: state}), do: state

  @doc """
  Returns the message as far as it has arrived, in the form of `AshAgent.Context.to_messages/2`.

  `:tool_calls` are the complete calls. Incomplete calls are under `:unfinished_tool_calls`, with the part of their arguments that came.
  Which of them may run is known once the response is on a context, see `AshAgent.Context.pending_tool_calls/1`: the calls of a refused
  answer are complete, too. A call without an id of its provider gets one on a context. Costs O(n).

  ## Examples

      iex> AshAgent.Response.message(AshAgent.Response.new(:gemini))
      %{role: :assistant, content: nil}
  """
  @doc since: "0.1.0"
  @spec message(t()) :: map()
  def message(%__MODULE__{} = response), do: response |> read() |> elem(0)

  @doc false
  # The message with all other facts of the answer in one call, for callers that need several of them.
  def read(%__MODULE__{ref: ref}) do
    {:ok, {message, {_id, _model, usage, finish_reason, finish_word, _bytes}}} =
      Native.response_message(ref)

    {message, %{usage: usage, finish_reason: finish_reason, finish_word: finish_word}}
  end

  @doc """
  Returns the text of the message as far as it has arrived, without thinking and calls, or `nil` if there is none.

  Takes a response or a message of `message/1`. Costs O(n).

  ## Examples

      iex> {:ok, response} = AshAgent.Response.from_message(%{content: [%{type: :text, text: "Hello"}, %{type: :text, text: "!"}]})
      iex> AshAgent.Response.text(response)
      "Hello!"
  """
  @doc since: "0.1.0"
  @spec text(t() | map()) :: String.t() | nil
  def text(%__MODULE__{} = response), do: response |> message() |> text()

  def text(%{content: parts}) when is_list(parts) do
    texts = for %{type: :text, text: text} <- parts, do: text
    if texts != [], do: IO.iodata_to_binary(texts)
  end

  def text(%{content: text}), do: text

  @doc """
  Returns the tokens that the provider has counted so far, or `nil`.

  ## Examples

      iex> body = ~s({"message":{"content":"Hi"},"done":true,"prompt_eval_count":5,"eval_count":2})
      iex> {:ok, response} = AshAgent.Response.decode(:ollama, body)
      iex> AshAgent.Response.usage(response)
      %{input_tokens: 5, output_tokens: 2, total_tokens: 7, cached_tokens: 0, cache_write_tokens: 0, reasoning_tokens: 0}
  """
  @doc since: "0.1.0"
  @spec usage(t()) :: map() | nil
  def usage(%__MODULE__{} = response), do: fact(response, 2)

  @doc """
  Returns why the model stopped, or `nil` if that is not known yet; `finish_word/1` returns the provider's own word.

  ## Examples

      iex> body = ~s({"choices":[{"message":{"content":"Once"},"finish_reason":"length"}]})
      iex> {:ok, response} = AshAgent.Response.decode(:openai_chat, body)
      iex> AshAgent.Response.finish_reason(response)
      :length
  """
  @doc since: "0.1.0"
  @spec finish_reason(t()) :: finish_reason() | nil
  def finish_reason(%__MODULE__{} = response), do: fact(response, 3)

  @doc """
  Returns the provider's own word for why the model stopped, or `nil`.

  ## Examples

      iex> body = ~s({"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"}]})
      iex> {:ok, response} = AshAgent.Response.decode(:gemini, body)
      iex> AshAgent.Response.finish_word(response)
      "STOP"
  """
  @doc since: "0.1.0"
  @spec finish_word(t()) :: String.t() | nil
  def finish_word(%__MODULE__{} = response), do: fact(response, 4)

  @doc """
  Returns further details of the provider about its answer, under the provider's own names, or `nil`.

  These are Gemini's `"groundingMetadata"`, `"citationMetadata"`, `"urlContextMetadata"`, `"finishMessage"` and
  `"continuationToken"`, Anthropic's `"container"`, `"stop_details"`, `"stop_sequence"`, `"context_management"` and
  `"diagnostics"`, and OpenAI's `"prompt_cache_diagnostics"`. They stay with the message, see `AshAgent.Context.fetch_message/2`. Costs O(n).

  Of chat servers these are `"annotations"`, `"citations"`, `"search_results"`, `"images"`, `"related_questions"` and `"executed_tools"`,
  and Bedrock's are `"trace"`, `"serviceTier"` and `"additionalModelResponseFields"`.

  ## Examples

      iex> body = ~s({"choices":[{"message":{"content":"Hi"}}],"citations":["https://a.example"]})
      iex> {:ok, response} = AshAgent.Response.decode(:openai_chat, body)
      iex> AshAgent.Response.details(response)
      %{"citations" => ["https://a.example"]}
  """
  @doc since: "0.1.0"
  @spec details(t()) :: %{String.t() => term()} | nil
  def details(%__MODULE__{ref: ref}) do
    {:ok, details} = Native.response_details(ref)
    details
  end

  @doc """
  Returns the name of the model, as given in the response, or `nil`.

  ## Examples

      iex> {:ok, response} = AshAgent.Response.decode(:ollama, ~s({"model":"m1","message":{},"done":true}))
      iex> AshAgent.Response.model(response)
      "m1"
  """
  @doc since: "0.1.0"
  @spec model(t()) :: String.t() | nil
  def model(%__MODULE__{} = response), do: fact(response, 1)

  @doc """
  Returns the response's id, or `nil`.

  ## Examples

      iex> AshAgent.Response.id(AshAgent.Response.new(:mistral))
      nil
  """
  @doc since: "0.1.0"
  @spec id(t()) :: String.t() | nil
  def id(%__MODULE__{} = response), do: fact(response, 0)

  @doc """
  Returns the number of bytes that were fed, or about those that a message has.

  ## Examples

      iex> {:ok, response, []} = AshAgent.Response.feed(AshAgent.Response.new(:anthropic), ": ping\\n")
      iex> AshAgent.Response.count_bytes(response)
      7
  """
  @doc since: "0.1.0"
  @spec count_bytes(t()) :: non_neg_integer()
  def count_bytes(%__MODULE__{} = response), do: fact(response, 5)

  @doc """
  Returns why a response failed, or `nil`.

  ## Examples

      iex> response = AshAgent.Response.new(:ollama)
      iex> {:ok, response, [{:error, error}]} = AshAgent.Response.feed(response, ~s({"error":"model 'x' not found"}\\n))
      iex> AshAgent.Response.error(response) == error
      true
      iex> Exception.message(error)
      "the provider refused or failed: model 'x' not found. Asking again will not help"
  """
  @doc since: "0.1.0"
  @spec error(t()) :: Error.t() | nil
  def error(%__MODULE__{ref: ref, state: :failed}) do
    {:ok, fault} = Native.response_reason(ref)
    Error.new(fault)
  end

  def error(%__MODULE__{}), do: nil

  defp fact(%{ref: ref}, position) do
    {:ok, facts} = Native.response_facts(ref)
    elem(facts, position)
  end

  defp news({:ok, {ref, :failed, events}}, response),
    do: {:ok, %{response | ref: ref, state: :failed}, Enum.map(events, &event/1)}

  defp news({:ok, {ref, state, events}}, response),
    do: {:ok, %{response | ref: ref, state: state}, events}

  defp news({:error, {:response, fault}}, _response), do: {:error, Error.new(fault)}

  defp event({:error, fault}), do: {:error, Error.new(fault)}
  defp event(event), do: event

  defimpl Inspect do
    # Counts only: this ends up in logs. A handle from another node is still a response.
    def inspect(response, _opts) do
      "#AshAgent.Response<#{from(response)}#{response.state}, #{AshAgent.Response.count_bytes(response)} bytes>"
    rescue
      ArgumentError -> "#AshAgent.Response<#{from(response)}#{response.state}>"
    end

    defp from(%{provider: nil}), do: ""
    defp from(%{provider: provider}), do: "#{provider}, "
  end
end
