defmodule AshAgent.Runtime.Hooks do
  @moduledoc """
  The behaviour of the module that the option `hooks` of `AshAgent.Resource` names.

      defmodule MyApp.Audit do
        @behaviour AshAgent.Runtime.Hooks

        @impl true
        def before_call(%{input: %{message: message}} = call) do
          if message =~ "password", do: {:error, "no passwords"}, else: {:ok, call}
        end
      end

  All callbacks are optional. Each gets a map with

    * `agent` - the resource
    * `input` - the arguments of the action, without `context`
    * `rendered_prompt` - the prompt, once it is rendered
    * `response` - the `AshAgent.Runtime.Result`, in `after_call`
    * `error` - the exception, in `on_error`

  and returns `{:ok, map}`, or `{:error, reason}` to end the call; the reason is an exception, or becomes that of an
  `AshAgent.Resource.Error`. They run in the process of the call, those after the run of a stream in the stream's own. The action
  `:resume` calls the last two alone.

  Hooks for tool calls, results and contexts are options of the run, see `AshAgent.Resource`.
  """

  @type call :: %{
          agent: module(),
          input: map(),
          rendered_prompt: String.t() | nil,
          response: AshAgent.Runtime.Result.t() | nil,
          error: Exception.t() | nil
        }

  @doc "Is called before the prompt is rendered. A changed `input` is rendered and sent."
  @callback before_call(call()) :: {:ok, call()} | {:error, term()}

  @doc "Is called before the run. A changed `rendered_prompt` is sent."
  @callback after_render(call()) :: {:ok, call()} | {:error, term()}

  @doc "Is called with the result. A changed `response` is returned."
  @callback after_call(call()) :: {:ok, call()} | {:error, term()}

  @doc "Is called with the error of anything before. `{:error, reason}` replaces it."
  @callback on_error(call()) :: {:ok, call()} | {:error, term()}

  @optional_callbacks before_call: 1, after_render: 1, after_call: 1, on_error: 1
end
