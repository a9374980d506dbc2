# The options of the sections, which applications write without parentheses with `import_deps: [:ash_agent_resources]`.
options = [
  :action,
  :actor_persister,
  :allowed_tools,
  :approval,
  :authority,
  :bulk,
  :budget_strategy,
  :client,
  :conversation,
  :deltas,
  :description,
  :domains,
  :fields,
  :filter,
  :function,
  :hooks,
  :iterations,
  :limit,
  :llm,
  :load,
  :max_iterations,
  :max_total_tokens,
  :name,
  :on_error,
  :options,
  :output,
  :parameters,
  :permission_rules,
  :prices,
  :prompt,
  :repeat,
  :sort,
  :store,
  :system_prompt,
  :timeout,
  :title,
  :title_llm,
  :token_budget,
  :tools,
  :without_conversation
]

locals_without_parens =
  [argument: 2, argument: 3, client: 2, tool: 1, tool: 2, tool: 3, tool: 4] ++
    for(option <- options, do: {option, 1})

[
  inputs: [
    "{mix,.formatter}.exs",
    "{lib,test}/**/*.{ex,exs}"
  ],
  export: [locals_without_parens: locals_without_parens]
]
