defmodule AshAgent.Runtime.Options do
  @moduledoc false

  # The options of a run, of which sessions and sub-agents take some, too.

  alias AshAgent.{Options, Prices}
  alias AshAgent.Runtime.PermissionOptions

  @schema Options.schema([
            {:llm, :any, [required: true, type_doc: "a model"], "see `t:AshAgent.LLM.t/0`."},
            {:tools, {:or, [:map, :list, {:fun, 0}]},
             [type_doc: "a map, a list, or a function of arity 0", default: %{}],
             "see `AshAgent.Runtime.Tool`. A function is called when a run begins, for tools that change while a session lives; if " <>
               "it fails, the run ends with `{:tools_exception, kind, term}`."},
            {:output, :any, [type_doc: "a type of `AshAgent.Output`"],
             "the type of the answer. The result's `output` is a value of it, see above. Defaults to text."},
            {:output_mode, {:in, [:auto, :native, :tool, :text]}, [default: :auto],
             "how a typed answer is asked for: by the provider's own field, by a tool, or in the system prompt. `:auto` takes the " <>
               "first of these that the schema, the model and the tools allow. The same mode and schema hold for the whole run, unless the " <>
               "provider refuses the schema: then `:auto` goes on with the tool, and the result's `output_note` says so."},
            {:max_retries, :non_neg_integer, [default: 2],
             "how often the model is asked again in a turn, with the errors, when its typed answer does not fit; what earlier runs of the turn " <>
               "asked counts, too. Each attempt is an iteration of the conversation and is paid for."},
            {:hide_retries, :boolean, [default: false],
             "whether the view leaves out the attempts that did not fit once an answer does. The log keeps them, in iterations of their own, " <>
               "and `AshAgent.Context.View.expand/2` shows them."},
            {:max_iterations, :pos_integer, [default: 10],
             "how many iterations a turn, which begins with the last user message, may have. After that many the run ends " <>
               "with `{:max_iterations_exceeded, max}`."},
            {:max_calls, {:or, [:pos_integer, {:in, [:infinity, nil]}]},
             [type_doc: "a positive integer or `:infinity`"],
             "how many calls of models this run and all its sub-agents may make together. After that many the run ends with " <>
               "`{:max_calls_exceeded, max}`. Defaults to `200`, or to `:max_iterations` if that is more."},
            {:max_total_tokens, {:or, [:pos_integer, {:in, [:infinity, nil]}]},
             [type_doc: "a positive integer or `:infinity`"],
             "how many tokens the models of this run and all its sub-agents may report before no other model is asked and the " <>
               "run ends with `{:max_total_tokens_exceeded, max}`. Answers on their way are still received. Defaults to " <>
               "`10_000_000`."},
            {:max_cost, {:or, [:pos_integer, {:in, [:infinity, nil]}]},
             [type_doc: "a positive integer of 10^-12 US dollars, or `:infinity`"],
             "what the answers of a turn may cost, with those of all sub-agents, before no other model is asked and the run ends, also if " <>
               "the next request would be beyond it, with `{:max_cost_exceeded, max}`, see below. Needs `:prices`. Defaults to `:infinity`."},
            {:max_sub_agents, {:or, [:non_neg_integer, {:in, [:infinity, nil]}]},
             [type_doc: "a non-negative integer or `:infinity`"],
             "how many sub-agents this run may start, at all depths together. The call of one more gets an error, which the " <>
               "model reads. Defaults to `50`."},
            {:prices, Prices.schema()[:prices]},
            {:view, {:custom, &__MODULE__.view?/1},
             [type_doc: "`:auto`, a list of enhancers, or `{enhancers, options}`", default: []],
             "what shapes the context's view before each request, see \"Views\" below. The options are those of " <>
               "`AshAgent.Context.Enhancer.run/3`."},
            {:summarize, {:or, [{:fun, 1}, nil]}, [type_doc: "a function of arity 1"],
             "makes a summary of messages, as in `AshAgent.Context.View.compact/3`, when a request is still too long after all that can be " <>
               "recalled is left out. Defaults to no summary. See `AshAgent.Context.Shortening`."},
            {:request_notes, {:in, [:whole, :hashes]}, [default: :whole],
             "whether the fields of requests and the tools are kept with the conversation, or digests of them, see " <>
               "`AshAgent.Context.Audit.put_request/4`."},
            {:runtime_context, :map,
             "passed to the tools and never stored, such as `%{agent: .., domain: .., actor: .., tenant: ..}`. The log says that there " <>
               "was one, and whoever goes on with the turn has to give one again. Defaults to an empty map."},
            {:restore_context, {:or, [{:fun, 1}, nil]}, [type_doc: "a function of arity 1"],
             "finds a runtime context again for a turn that is continued where it is gone, such as after a restart: gets the metadata " <>
               "of the user message that asked, as the conversation has it, and returns `{:ok, runtime_context}`. After anything " <>
               "else, and after 5 seconds, it is missing. Defaults to no function."},
            {:timeout, :milliseconds, [default: :infinity], "the time for the whole run."},
            {:llm_timeout, :milliseconds, [default: 120_000],
             "the time for one answer of the model."},
            {:tool_timeout, :milliseconds, [default: 60_000], "the time for one tool call."},
            {:max_concurrency, :pos_integer, [default: 8], "how many tools may run at a time."},
            {:max_attempts, :pos_integer, [default: 3],
             "how often a call may be started when each attempt ends with its machine, see \"Calls that may be repeated\" in " <>
               "`AshAgent.Runtime.Tool`. After that its outcome is unknown, or a person is asked."},
            {:when_late, {:in, [:go_on, :end, :wait]}, [default: :go_on],
             "what the turn does when a tool with `:late` returns `{:later, ...}`: `:go_on` asks the model again, which reads that the result " <>
               "comes later; `:end` ends the turn, and the result begins one of its own; `:wait` goes on with the turn when all results have " <>
               "come. See `AshAgent.Runtime.Result` for `:waiting`."},
            {:check_arguments, :boolean, [default: true],
             "whether the arguments of calls are checked against the schemas of their tools, and repaired, see `AshAgent.Runtime.Tool`."},
            {:exception_messages, :boolean, [default: false],
             "whether the model reads the message of an exception that a tool raised, and not its module alone. Messages hold " <>
               "what was at hand, such as addresses with passwords. `:on_event` gets the exception either way."},
            {:stream, :boolean, [default: true],
             "whether to stream if the model can, see `AshAgent.LLM.streams?/1`."}
          ]) ++
            PermissionOptions.schema() ++
            Options.schema([
              {:before_tool, {:custom, &__MODULE__.before?/1},
               [type_doc: "a function of arity 2, or a list of them"],
               "gets the call and the tool context, and returns `:ok`, `{:ok, call}` with changed arguments, or " <>
                 "`{:deny, reason}`. Defaults to no function."},
              {:after_tool, {:custom, &__MODULE__.after?/1},
               [type_doc: "a function of arity 3, or a list of them"],
               "gets the call, its result (`{:ok, term}` or `{:error, reason}`) and the tool context, and returns `:ok`, or " <>
                 "`{:ok, result}` with another result. It is called as results arrive, one at a time, also when the tool " <>
                 "failed. If it replaces the result of a tool that halted with an error, the run continues. Defaults to no " <>
                 "function."},
              {:approval, {:or, [{:in, [:auto, nil]}, {:fun, 2}]},
               [type_doc: "`:auto` or a function of arity 2", default: :auto],
               "a function gets the call and the tool context, and returns `:approve`, `{:deny, reason}` or `:ask`."},
              {:on_event, {:or, [{:fun, 1}, {:fun, 3}, nil]},
               [type_doc: "a function of arity 1 or 3"],
               "is called for each step, see `AshAgent.Runtime.Events`. Defaults to no function."},
              {:on_change, {:or, [{:fun, 1}, nil]}, [type_doc: "a function of arity 1"],
               "gets every new context before the next step begins, to store it: after each answer of the model, each decision and " <>
                 "question about a call and each result of a tool, and during a stream the context as it would be if the stream broke " <>
                 "off there. If it returns `{:error, reason}`, the run ends with `{:on_change_error, reason}`: running tools " <>
                 "are killed, their calls are interrupted, and it gets no other context. If it fails in another way, that is " <>
                 "logged and the run continues. Defaults to no function."},
              {:on_change_bytes, :pos_integer, [default: 8_192],
               "during a stream, `:on_change` gets a context after this many bytes of text,"},
              {:on_change_interval, :pos_integer, [default: 500],
               "or this many milliseconds after the first text that it has not got, whichever comes first."},
              {:store, :any, [type_doc: "a store"],
               "the `AshAgent.Store` that keeps the conversation, see above. Defaults to no store."},
              {:kept, {:or, [{:struct, AshAgent.Store.Conversation}, nil]},
               [type_doc: "a stored conversation"],
               "the stored conversation that the context is a state of, as `AshAgent.Store.claim/3` returns it. Required " <>
                 "with `:store`."},
              {:supervisor, :any, [type_doc: "a `Task.Supervisor`"],
               "runs the model and the tools, for callers that clean up after a run themselves. By default they end " <>
                 "with the run."}
            ])

  @doc "The schema of a run."
  def schema, do: @schema

  @doc "The functions of a run that its sub-agents inherit."
  def list_inherited, do: [:before_tool, :after_tool, :approval, :exception_messages]

  @doc "The options of these names for a schema of another function, which refers to those of a run."
  def take_schema(names), do: Keyword.take(@schema, names)

  @doc false
  def view?(view) when view in [:auto, nil], do: true
  def view?({enhancers, opts}), do: view?(enhancers) and Keyword.keyword?(opts)
  def view?(enhancers), do: is_list(enhancers) and not List.improper?(enhancers)

  @doc false
  def before?(hooks), do: hooks?(hooks, 2)

  @doc false
  def after?(hooks), do: hooks?(hooks, 3)

  defp hooks?(hooks, arity) when is_list(hooks),
    do: not List.improper?(hooks) and Enum.all?(hooks, &is_function(&1, arity))

  defp hooks?(hook, arity), do: is_nil(hook) or is_function(hook, arity)
end
