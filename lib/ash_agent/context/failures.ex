defmodule AshAgent.Context.Failures do
  @moduledoc """
  Requests to models that failed, kept with the conversation.

  `AshAgent.Runtime` records each failed request, each attempt after which it waited, and each stream that broke off, in the
  iteration that the answer would have been in. A failure contains neither a key nor any part of the request; the server's message is cut to 500
  characters, and the masks of `AshAgent.Context.put_masks/3` apply to it. Failures are stored with the conversation and forked with it, and models never see
  them.

  An iteration keeps 16 separate failures. Later ones are only counted, in the `:count` of the last one of their kind.

  Call these as functions of `AshAgent.Context`, which checks their arguments. Here they take anything with the context's `:ref`.
  """

  alias AshAgent.Context.{Native, Options, Reply}

  @typedoc """
  A failed request.

    * `:kind` - what kind of failure it was, see `t:AshAgent.Response.Error.kind/0`
    * `:iteration` - the number of its iteration
    * `:at` - when it had failed; of several that are counted, the last one
    * `:requested_at` - when it was sent
    * `:count` - how many failures it stands for, mostly 1
    * `:provider`, `:model` - who was asked
    * `:status` - the HTTP status
    * `:code` - the provider's name for the error
    * `:request_id` - the provider's id of the request
    * `:timeout` - which limit was reached: `"connect"`, `"first_byte"`, `"idle"` or `"whole"`
    * `:part` - `"stream"` where a part of the answer came
    * `:attempt` - the number of the attempt, from 1
    * `:wait` - milliseconds until the next attempt, if there was one
    * `:message` - the server's words

  Keys of unknown facts are not there.
  """
  @type failure :: %{
          required(:kind) => AshAgent.Response.Error.kind(),
          required(:iteration) => pos_integer(),
          required(:at) => DateTime.t(),
          required(:count) => pos_integer(),
          optional(atom()) => term()
        }

  @doc """
  Records a failed request in the current iteration, and returns the new context.

  `failure` is a map with `:kind` and whatever else is known, see `t:failure/0`, with atoms or strings for keys. `:at` is now if it is not
  given. Raises `AshAgent.Context.Error` with `{:invalid, path, expected}` for anything else. Takes the option `:at`, when the context changes, as
  `AshAgent.Context.put_metadata/4` does.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!") |> AshAgent.Context.add_failure(%{kind: :overloaded, status: 529})
      iex> [%{kind: :overloaded, status: 529, iteration: 1, count: 1}] = AshAgent.Context.failures(context)
      iex> AshAgent.Context.count_messages(context)
      1
  """
  @doc since: "0.1.0"
  @spec add_failure(context, map(), keyword()) :: context when context: Reply.handle()
  def add_failure(%{ref: ref} = context, failure, opts \\ []),
    do: ref |> Native.context_add_failure(failure, Options.time!(opts)) |> Reply.put!(context)

  @doc """
  Returns the requests that failed, oldest first. Costs O(n) in the iterations.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.failures()
      []
  """
  @doc since: "0.1.0"
  @spec failures(Reply.handle()) :: [failure()]
  def failures(%{ref: ref} = _context), do: ref |> Native.context_failures() |> Reply.ok!()
end
