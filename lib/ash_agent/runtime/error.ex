defmodule AshAgent.Runtime.Error do
  @moduledoc """
  Why a run ended without an answer, with the context that it had reached.

  `context` is valid and can go on: with `AshAgent.Context.add_user_message/2`, or with `AshAgent.Runtime.run/2` again.
  No message in it is half written.

    * `reason` - for matching, see `t:reason/0`
    * `context` - the conversation up to here
    * `usage` - what the models of this run reported, summed up
    * `iterations` - how many times the model answered in this run
  """

  alias AshAgent.Context

  @typedoc """
    * `{:max_iterations_exceeded, max}` - the turn has used up its iterations
    * `{:max_calls_exceeded, max}` - the run, with its sub-agents, has called models that many times
    * `{:max_total_tokens_exceeded, max}` - the models of the run, sub-agents included, have reported that many tokens
    * `{:timeout, milliseconds}` - the run took longer than `:timeout`; calls without a result are interrupted
    * `{:llm_timeout, milliseconds}` - one answer of the model took longer than `:llm_timeout`
    * `{:llm_error, term}` - the model returned `{:error, term}`
    * `{:llm_exception, kind, term}` - the model function raised (`:error` with the exception), threw or exited
    * `{:invalid_answer, term}` - what the model returned is no answer; the term is an exception or text
    * `{:on_change_error, term}` - `:on_change` returned `{:error, term}`; it has not been given the context since
    * `:cancelled` - `AshAgent.Session.cancel/1`
    * `{:exit, term}` - the process of the run was killed
  """
  @type reason ::
          {:max_iterations_exceeded, pos_integer()}
          | {:max_calls_exceeded, pos_integer()}
          | {:max_total_tokens_exceeded, pos_integer()}
          | {:timeout, pos_integer()}
          | {:llm_timeout, pos_integer()}
          | {:llm_error, term()}
          | {:llm_exception, :error | :exit | :throw, term()}
          | {:invalid_answer, Exception.t() | String.t()}
          | {:on_change_error, term()}
          | :cancelled
          | {:exit, term()}

  @type t :: %__MODULE__{
          reason: reason(),
          context: Context.t(),
          usage: map(),
          iterations: non_neg_integer()
        }

  @enforce_keys [:reason, :context]
  defexception [:reason, :context, usage: %{}, iterations: 0]

  @impl true
  def message(%{reason: reason}), do: describe(reason)

  defp describe({:max_iterations_exceeded, max}) do
    "the model still called tools after #{max} iterations of this turn. " <>
      "Add a user message, or run again with a greater :max_iterations"
  end

  defp describe({:max_calls_exceeded, max}) do
    "the run and its sub-agents have made #{max} model calls. " <>
      "Run again to go on, or give a greater :max_calls"
  end

  defp describe({:max_total_tokens_exceeded, max}) do
    "the models of the run and its sub-agents have reported #{max} tokens or more. " <>
      "Run again to go on, or give a greater :max_total_tokens"
  end

  defp describe({:timeout, timeout}), do: "the run took longer than #{timeout} ms"
  defp describe({:llm_timeout, timeout}), do: "the model did not answer within #{timeout} ms"

  defp describe({:llm_error, error}) when is_exception(error),
    do: "the model failed: " <> Exception.message(error)

  defp describe({:llm_error, reason}), do: "the model failed: " <> short(reason)

  defp describe({:llm_exception, :error, error}) when is_exception(error),
    do: "the model function raised #{inspect(error.__struct__)}: " <> Exception.message(error)

  defp describe({:llm_exception, :throw, value}), do: "the model function threw " <> short(value)

  defp describe({:llm_exception, _kind, reason}),
    do: "the model function exited with " <> short(reason)

  defp describe({:invalid_answer, error}) when is_exception(error),
    do: "the model's answer cannot be kept: " <> Exception.message(error)

  defp describe({:invalid_answer, words}), do: "the model's answer cannot be kept: " <> words

  defp describe({:on_change_error, reason}) do
    "the conversation could not be kept: :on_change returned the error " <>
      short(reason) <>
      ". The error's context has what was reached: store it, or go on from what is stored"
  end

  defp describe(:cancelled), do: "the run was cancelled"
  defp describe({:exit, reason}), do: "the process of the run exited with " <> short(reason)

  defp short(term), do: inspect(term, limit: 20, printable_limit: 500)
end
