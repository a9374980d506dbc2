defmodule AshAgent.Response do
  @moduledoc """
  What a model's provider sends back, whole or as a stream of bytes: an immutable value, held in Rust behind a handle.

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

  `feed/2` takes the bytes of an HTTP body as they come, cut anywhere: inside a character, a line or a binary frame. It
  knows the streams and the whole answers of every provider that `t:AshAgent.Context.provider/0` names, and of servers
  that speak like one of them. `decode/3` reads a whole answer.

  ## States

    * `:open` - more is to come
    * `:complete` - all of it came. Some providers have no last word but the end of the body: call `finish/1` there
    * `:failed` - the provider said that something went wrong, or sent what cannot be read; see `error/1`
    * `:interrupted` - you called `interrupt/2`: nothing more will come

  A response is put on a conversation with `AshAgent.Context.add_response/3` when it is complete or interrupted. What broke
  off is kept: all text that came, marked with `state: :interrupted`, and no signature or id of what was not complete, so
  that the next request is valid.

  ## Tool calls

  A call is complete when the *stream* says so, never because its arguments happen to parse: half of `{"path": "/tmp/a"}`
  may be a whole of something else. A call that broke off is never pending and never executed. On the conversation it has
  an error for its result that tells the model what happened.

  ## Events

  `feed/2` and `finish/1` return what is new, see `t:event/0`. Texts are whole characters; joined in their order, those of
  one part are that part of the message. Where a provider sends a text once more as a whole and it differs, the whole wins.

  ## Sharing and lifetime

  Feeding a response gives a new one that shares everything with the old: it costs what is new, and the old one can be
  fed differently. A response works on the node that made it and cannot be stored; put it on a context for that.

  ## Limits

  `:max_bytes` of `new/2`; documents are at most 200 levels deep, arguments 256. What a provider sends never makes an atom.
  """

  alias AshAgent.Context
  alias AshAgent.Context.Native
  alias AshAgent.Response.Error

  @enforce_keys [:ref, :provider, :state]
  defstruct [:ref, :provider, :state]

  @typedoc "`state` and `provider` may be read and matched on. `ref` is private."
  @type t :: %__MODULE__{ref: reference(), provider: Context.provider(), state: state()}

  @type state :: :open | :complete | :failed | :interrupted

  @typedoc """
  Why the model stopped.

    * `:stop` - it said what it had to say
    * `:tool_calls` - it wants tools to be run, in whatever words the provider says so
    * `:length` - it reached a limit of tokens
    * `:content_filter` - a filter of the provider stopped it
    * `:refusal` - it does not want to answer
    * `:pause` - it goes on when it is asked again with what it said
    * `:error` - something went wrong on the provider's side, such as a malformed call
  """
  @type finish_reason ::
          :stop | :tool_calls | :length | :content_filter | :refusal | :pause | :error

  @typedoc """
  Something new in a response.

    * `{:text, part, text}`, `{:thinking, part, text}` - more of a text; `part` is its 0-based position in the message
    * `{:tool_call_started, position, name}` - a call; `position` is its 0-based position among the message's calls
    * `{:tool_call_arguments, position, json}` - more of the text of its arguments, where they come in pieces
    * `{:tool_call, call}` - a complete call, as `t:AshAgent.Context.tool_call/0`
    * `{:part, part}` - a part that came as a whole, as `t:AshAgent.Context.part/0`
    * `{:usage, map}` - the tokens that the provider counted so far; a later one replaces it
    * `{:finish, reason}` - why the model stopped
    * `{:error, error}` - the response failed; nothing comes after it
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

  @providers [
    :anthropic,
    :openai_chat,
    :openai_responses,
    :gemini,
    :bedrock,
    :ollama,
    :mistral
  ]

  @max_bytes 33_554_432

  @schema [
    model: [
      type: {:or, [:string, nil]},
      default: nil,
      doc:
        "the model that was asked. Thinking is kept with this name, and goes back to this model only."
    ],
    framing: [
      type: {:in, [nil, :sse, :ndjson, :aws_event_stream, :json]},
      default: nil,
      doc:
        "how the body is framed, where the content type does not tell. `:json` is a whole answer, or Gemini's list of them."
    ],
    content_type: [
      type: {:or, [:string, nil]},
      default: nil,
      doc:
        "the body's content type, which tells the framing. A type that tells nothing is left aside: then it is the " <>
          "provider's own framing, and a JSON body in the place of server-sent events is read as such."
    ],
    max_bytes: [
      type: :pos_integer,
      default: @max_bytes,
      doc: "the bytes that the response may have."
    ]
  ]

  @doc """
  Starts to read a response of a provider.

  ## Options

  #{AshAgent.Options.docs(@schema)}

  ## Examples

      iex> AshAgent.Response.new(:anthropic).state
      :open
  """
  @doc since: "0.1.0"
  @spec new(Context.provider(), keyword()) :: t()
  def new(provider, opts \\ []) when provider in @providers and is_list(opts) do
    {:ok, ref} = provider |> options(opts) |> Native.response_new()
    %__MODULE__{ref: ref, provider: provider, state: :open}
  end

  @doc """
  Reads a whole response, and returns `{:ok, response}` or `{:error, error}`.

  `body` is the JSON text of the HTTP body, or what a JSON library made of it. A provider's error in it is
  `{:error, error}`, and so is a body that is neither. Takes the options of `new/2`. Costs O(n).

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
    case Native.response_decode(body, options(provider, opts)) do
      {:ok, {ref, state, []}} -> {:ok, %__MODULE__{ref: ref, provider: provider, state: state}}
      {:error, {:response, fault}} -> {:error, Error.new(fault)}
    end
  end

  def decode(provider, body, opts) when is_map(body) or is_list(body),
    do: decode(provider, Context.JSON.encode(body), opts)

  @doc """
  Feeds the next bytes of the HTTP body, and returns `{:ok, response, events}` or `{:error, error}`.

  Costs what is new, and runs on a normal scheduler for chunks of up to 32 KB.

  `{:error, error}` says that these bytes cannot be taken: they are not what the protocol says, exceed a limit, or the
  response was interrupted. The response you have is as it was; `interrupt/2` keeps what it holds. When something could be
  read in front of the bad bytes, the response comes with it, in the state `:failed`, and `{:error, error}` is the last event. So
  it does when the provider itself says that something went wrong. Bytes after the end are left alone.

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
  def feed(%__MODULE__{ref: ref} = response, bytes) when is_binary(bytes),
    do: ref |> Native.response_feed(bytes) |> news(response)

  @doc """
  Says that the body ended, and returns `{:ok, response, events}` or `{:error, error}`.

  For some providers that is the last word. A body that ended before its response did is an error whose reason is
  `:incomplete`, not an answer; the response you have is as it was.

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
  Says that nothing more will come, and returns the response in the state `:interrupted`.

  `reason` is kept with the message: any term, see `AshAgent.Context.fetch_message/2`. What is complete stays complete.

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
  Returns the message as far as it came, as `AshAgent.Context.to_messages/2` shows messages.

  `:tool_calls` are the complete calls. Calls that are not complete stand under `:unfinished_tool_calls`, with the text that
  came of their arguments. A call to which its provider gave no id has none until it is on a context. Costs O(n).

  ## Examples

      iex> AshAgent.Response.message(AshAgent.Response.new(:gemini))
      %{role: :assistant, content: nil}
  """
  @doc since: "0.1.0"
  @spec message(t()) :: map()
  def message(%__MODULE__{ref: ref}) do
    {:ok, message} = Native.response_message(ref)
    message
  end

  @doc """
  Returns the tokens that the provider counted so far, or `nil`.

  ## Examples

      iex> body = ~s({"message":{"content":"Hi"},"done":true,"prompt_eval_count":5,"eval_count":2})
      iex> {:ok, response} = AshAgent.Response.decode(:ollama, body)
      iex> AshAgent.Response.usage(response)
      %{input_tokens: 5, output_tokens: 2, total_tokens: 7, cached_tokens: 0, reasoning_tokens: 0}
  """
  @doc since: "0.1.0"
  @spec usage(t()) :: map() | nil
  def usage(%__MODULE__{} = response), do: fact(response, 2)

  @doc """
  Returns why the model stopped, or `nil` as long as that is not known; `finish_word/1` is the provider's own word.

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
  Returns the name of the model that answers, as it names itself, or `nil`.

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
  Returns the number of bytes that were fed.

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

  defp options(provider, opts) do
    opts = AshAgent.Options.validate!(opts, @schema)
    {provider, opts[:framing], opts[:content_type], opts[:model], opts[:max_bytes]}
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
      "#AshAgent.Response<#{response.provider}, #{response.state}, #{AshAgent.Response.count_bytes(response)} bytes>"
    rescue
      ArgumentError -> "#AshAgent.Response<#{response.provider}, #{response.state}>"
    end
  end
end
