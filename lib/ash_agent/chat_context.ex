defmodule AshAgent.ChatContext do
  @moduledoc """
  A chat: named branches of one conversation, one of them active, and the settings that its agent runs with.

      iex> alias AshAgent.{ChatContext, Context}
      iex> chat = ChatContext.new(input: "Name a city.", system_prompt: "Be brief.", config: [model_id: "m1"])
      iex> chat = ChatContext.update_context(chat, &Context.add_assistant_message(&1, "Rome"))
      iex> chat = ChatContext.branch(chat, "poem", system_prompt: "Answer in rhymes.")
      iex> chat = chat |> ChatContext.switch("poem") |> ChatContext.update_context(&Context.add_user_message(&1, "And why?"))
      iex> for branch <- ChatContext.branches(chat), do: {branch.name, Context.count_messages(branch.context)}
      [{"main", 3}, {"poem", 4}]
      iex> ChatContext.active(chat).system_prompt
      "Answer in rhymes."

  A **branch** is a name for an `AshAgent.Context`. To branch costs the same for a conversation of any length: branches
  share their messages in memory, and `dump/1` stores a message once however many branches have it. The functions of
  `AshAgent.Context` work on a branch through `update_context/3`.

  Each branch has a system prompt and a user prompt of its own; requests have the user prompt behind the system prompt.

  A **child** is a chat with a `parent_id`, for an agent that works on a part of the task: see `spawn_child/2` and
  `complete_child/4`. The guide [Branches](branches.html) shows both.

  ## Errors

  A caller's mistakes raise `FunctionClauseError` or `ArgumentError`. What data can cause raises `AshAgent.Context.Error`,
  such as `{:unknown_branch, name, names}`, or is returned as `{:error, error}` by the functions that have a `!` twin.

  ## Sharing and lifetime

  A chat is an immutable value: every function that changes it returns a new one. It holds handles, so handing it to
  another process costs the same for conversations of any length. As contexts do, it works on the node that made it
  only, and elsewhere every function raises an `ArgumentError` that names that node; to store or send it, take `dump/1` or
  `to_snapshot/1`. `==` does not tell whether two chats are equal, `equal?/2`
  does.
  """

  alias AshAgent.ChatContext.{Branch, Config, Stored}
  alias AshAgent.Context
  alias AshAgent.Context.{Error, Handle, JSON, Trust}

  @enforce_keys [:id, :config, :branches, :active_branch_name, :made]
  defstruct [:id, :parent_id, :config, :branches, :active_branch_name, :made, extra: %{}]

  @typedoc """
  A chat.

    * `id` - non-empty text
    * `parent_id` - the id of the chat that it is a child of, or `nil`
    * `config` - the settings, see `t:AshAgent.ChatContext.Config.t/0`
    * `branches` - the branches by name; `branches/1` gives them in order
    * `active_branch_name` - the name of one of them

  Other fields are private.
  """
  @type t :: %__MODULE__{
          id: String.t(),
          parent_id: String.t() | nil,
          config: Config.t(),
          branches: %{required(String.t()) => Branch.t()},
          active_branch_name: String.t(),
          made: pos_integer(),
          extra: map()
        }

  @new_options [
    :input,
    :context,
    :id,
    :config,
    :system_prompt,
    :user_prompt,
    :at,
    branch: "main"
  ]

  @doc """
  Makes a chat with one branch.

  ## Options

    * `:input` - the first message of the user, as `AshAgent.Context.new/2` takes it. Defaults to none: the
      conversation is empty then.
    * `:context` - a context to begin with instead.
    * `:id` - the chat's id, non-empty text. Defaults to the id of the context, which for a new one is a UUID v4; a new
      context gets the chat's id.
    * `:config` - a keyword list, a map or an `AshAgent.ChatContext.Config`. Defaults to an empty one.
    * `:branch` - the branch's name. Defaults to `"main"`.
    * `:system_prompt` - text or text parts. Defaults to that of the context.
    * `:user_prompt` - text that stands behind the system prompt in requests. Defaults to that of the context.
    * `:at` - the time it starts, a `DateTime`. Defaults to now.

  ## Examples

      iex> chat = AshAgent.ChatContext.new(input: "Hello!", id: "chat_1")
      iex> {chat.id, chat.parent_id, chat.active_branch_name}
      {"chat_1", nil, "main"}
      iex> AshAgent.ChatContext.new() |> AshAgent.ChatContext.active() |> Map.fetch!(:context) |> AshAgent.Context.count_messages()
      0
  """
  @doc since: "0.1.0"
  @spec new(keyword()) :: t()
  def new(opts \\ []) when is_list(opts) do
    opts = Keyword.validate!(opts, @new_options)

    if opts[:input] != nil and opts[:context] != nil,
      do: raise(ArgumentError, "expected :input or :context, got both")

    opts |> first_context() |> begin(opts)
  end

  defp first_context(opts) do
    id = id(opts)

    case opts[:context] do
      %Context{} = context -> context
      nil -> opened(opts[:input], id, opts[:at])
      other -> raise ArgumentError, "expected :context to be a context, got: #{inspect(other)}"
    end
  end

  defp opened(nil, id, at) do
    at = time(at)
    times = if at, do: [created_at: at, updated_at: at], else: []
    iteration = if at, do: [iterations: [%{number: 1, messages: [], started_at: at}]], else: []
    Context.create!(if(id, do: [id: id], else: []) ++ times ++ iteration)
  end

  defp opened(input, id, at) when is_binary(input) or is_list(input) or is_map(input),
    do: Context.new(input, id: id, at: at)

  defp opened(input, _id, _at) do
    raise ArgumentError,
          "expected :input to be text, a list of parts or a map, got: #{inspect(input)}"
  end

  defp begin(context, opts) do
    name = name!(opts[:branch])

    branch =
      name |> Branch.new(context, number: 1) |> put_prompts(opts, Keyword.take(opts, [:at]))

    %__MODULE__{
      id: opts[:id] || context[:id],
      config: Config.new(opts[:config] || []),
      branches: %{name => branch},
      active_branch_name: name,
      made: 1
    }
  end

  @doc """
  Makes a branch of another one, under a new name, and returns the new chat. The active branch stays the active one.

  Costs O(log n); no message is copied.

  Raises `AshAgent.Context.Error` with `{:branch_exists, name}`, `{:unknown_branch, name, names}` or
  `{:unknown_iteration, number, first..last}`.

  ## Options

    * `:from` - the name of the branch to begin with. Defaults to the active one.
    * `:iteration` - its number: the branch begins as the conversation was at its end, see
      `AshAgent.Context.rewind/2`. Defaults to the current iteration.
    * `:system_prompt`, `:user_prompt` - as in `put_system_prompt/3` and `put_user_prompt/3`. Default to those of the branch
      it begins with.

  ## Examples

      iex> alias AshAgent.{ChatContext, Context}
      iex> chat = ChatContext.new(input: "One") |> ChatContext.update_context(&Context.add_assistant_message(&1, "1"))
      iex> chat = ChatContext.update_context(chat, &Context.add_user_message(&1, "Two"))
      iex> chat = ChatContext.branch(chat, "again", from: "main", iteration: 1)
      iex> chat.branches["again"].context |> Context.to_messages()
      [%{role: :user, content: "One"}, %{role: :assistant, content: "1"}]

      iex> AshAgent.ChatContext.new() |> AshAgent.ChatContext.branch("idea", from: "plan")
      ** (AshAgent.Context.Error) there is no branch "plan"; the chat has ["main"]
  """
  @doc since: "0.1.0"
  @spec branch(t(), String.t(), keyword()) :: t()
  def branch(%__MODULE__{} = chat, name, opts \\ []) when is_binary(name) and is_list(opts) do
    opts = Keyword.validate!(opts, [:from, :iteration, :system_prompt, :user_prompt])
    refuse_known!(chat, name!(name))
    origin = named!(chat, opts[:from])
    made = chat.made + 1
    branch = Branch.fork(origin, name, made, context_at(origin.context, opts[:iteration]))
    put(%{chat | made: made}, put_prompts(branch, opts, []))
  end

  defp context_at(context, nil), do: context

  defp context_at(context, number) when is_integer(number),
    do: Context.rewind(context, to: number)

  defp context_at(_context, other) do
    raise ArgumentError, "expected :iteration to be an iteration's number, got: #{inspect(other)}"
  end

  @doc """
  Makes another branch the active one, and returns the new chat.

  Raises `AshAgent.Context.Error` with `{:unknown_branch, name, names}`.

  ## Examples

      iex> chat = AshAgent.ChatContext.new() |> AshAgent.ChatContext.branch("idea")
      iex> AshAgent.ChatContext.switch(chat, "idea").active_branch_name
      "idea"
  """
  @doc since: "0.1.0"
  @spec switch(t(), String.t()) :: t()
  def switch(%__MODULE__{} = chat, name) when is_binary(name),
    do: %{chat | active_branch_name: named!(chat, name).name}

  @doc """
  Returns the active branch.

  ## Examples

      iex> AshAgent.ChatContext.active(AshAgent.ChatContext.new(input: "Hello!")).name
      "main"
  """
  @doc since: "0.1.0"
  @spec active(t()) :: Branch.t()
  def active(%__MODULE__{branches: branches, active_branch_name: name}),
    do: branches |> Map.fetch!(name) |> own!()

  @doc """
  Returns `{:ok, branch}` for the branch of this name, or `:error`.

  ## Examples

      iex> chat = AshAgent.ChatContext.new(input: "Hello!")
      iex> {:ok, branch} = AshAgent.ChatContext.fetch_branch(chat, "main")
      iex> AshAgent.Context.count_messages(branch.context)
      1
      iex> AshAgent.ChatContext.fetch_branch(chat, "idea")
      :error
  """
  @doc since: "0.1.0"
  @spec fetch_branch(t(), String.t()) :: {:ok, Branch.t()} | :error
  def fetch_branch(%__MODULE__{} = chat, name) when is_binary(name),
    do: Map.fetch(own_branches!(chat), name)

  @doc """
  Returns all branches in the order in which they were made.

  ## Examples

      iex> chat = AshAgent.ChatContext.new() |> AshAgent.ChatContext.branch("b") |> AshAgent.ChatContext.branch("a")
      iex> chat |> AshAgent.ChatContext.branches() |> Enum.map(& &1.name)
      ["main", "b", "a"]
  """
  @doc since: "0.1.0"
  @spec branches(t()) :: [Branch.t()]
  def branches(%__MODULE__{} = chat),
    do: chat |> own_branches!() |> Map.values() |> Enum.sort_by(& &1.number)

  @doc """
  Puts what `fun` returns for a branch's context in its place, and returns the new chat.

  The branch's prompts are those of the context that `fun` returns. What `fun` raises is raised, and the chat is as it
  was.

  ## Options

    * `:branch` - the name of the branch, for instance when it may not be the active one any more. Defaults to the
      active one.

  Raises `AshAgent.Context.Error` with `{:unknown_branch, name, names}`.

  ## Examples

      iex> alias AshAgent.{ChatContext, Context}
      iex> chat = ChatContext.new(input: "Hello!") |> ChatContext.update_context(&Context.add_assistant_message(&1, "Hi!"))
      iex> Context.count_messages(ChatContext.active(chat).context)
      2
  """
  @doc since: "0.1.0"
  @spec update_context(t(), (Context.t() -> Context.t()), keyword()) :: t()
  def update_context(%__MODULE__{} = chat, fun, opts \\ [])
      when is_function(fun, 1) and is_list(opts) do
    branch = chosen!(chat, Keyword.validate!(opts, [:branch]))

    case fun.(branch.context) do
      %Context{} = context ->
        put(chat, Branch.put_context(branch, context))

      other ->
        raise ArgumentError, "expected the function to return a context, got: #{inspect(other)}"
    end
  end

  @doc """
  Puts another system prompt, text or text parts, in the place of a branch's own, and returns the new chat. `nil` takes it
  away.

  The other branches keep theirs. Raises `AshAgent.Context.Error` with `{:unknown_branch, name, names}`.

  ## Options

    * `:branch` - the name of the branch. Defaults to the active one.
    * `:at` - the time of the change, a `DateTime`. Defaults to now.

  ## Examples

      iex> chat = AshAgent.ChatContext.new(input: "Hello!") |> AshAgent.ChatContext.put_system_prompt("Be kind.")
      iex> AshAgent.ChatContext.active(chat).system_prompt
      "Be kind."
  """
  @doc since: "0.1.0"
  @spec put_system_prompt(t(), Context.content(), keyword()) :: t()
  def put_system_prompt(%__MODULE__{} = chat, prompt, opts \\ [])
      when (is_binary(prompt) or is_list(prompt) or is_nil(prompt)) and is_list(opts) do
    opts = Keyword.validate!(opts, [:branch, :at])

    put(
      chat,
      chat |> chosen!(opts) |> Branch.put_system_prompt(prompt, Keyword.take(opts, [:at]))
    )
  end

  @doc """
  Puts a text behind the system prompt in a branch's requests, in the place of the one there is, and returns the new
  chat. `nil` or a blank text takes it away.

  Takes the options of `put_system_prompt/3` and raises what it does.

  ## Examples

      iex> alias AshAgent.{ChatContext, Context}
      iex> chat = ChatContext.new(input: "Hello!", system_prompt: "Be kind.") |> ChatContext.put_user_prompt("I am Ann.")
      iex> Context.request!(ChatContext.active(chat).context, :anthropic)["system"]
      "Be kind.\\n\\nI am Ann."
  """
  @doc since: "0.1.0"
  @spec put_user_prompt(t(), String.t() | nil, keyword()) :: t()
  def put_user_prompt(%__MODULE__{} = chat, prompt, opts \\ [])
      when (is_binary(prompt) or is_nil(prompt)) and is_list(opts) do
    opts = Keyword.validate!(opts, [:branch, :at])
    put(chat, chat |> chosen!(opts) |> Branch.put_user_prompt(prompt, Keyword.take(opts, [:at])))
  end

  @doc """
  Gives a branch another name, and returns the new chat. Its place in the order stays, and so does which one is active.

  Raises `AshAgent.Context.Error` with `{:unknown_branch, name, names}` or `{:branch_exists, name}`.

  ## Examples

      iex> chat = AshAgent.ChatContext.new() |> AshAgent.ChatContext.rename_branch("main", "first")
      iex> chat.active_branch_name
      "first"
  """
  @doc since: "0.1.0"
  @spec rename_branch(t(), String.t(), String.t()) :: t()
  def rename_branch(%__MODULE__{} = chat, name, new_name)
      when is_binary(name) and is_binary(new_name) do
    branch = named!(chat, name)
    if new_name != name, do: refuse_known!(chat, name!(new_name))
    active = if chat.active_branch_name == name, do: new_name, else: chat.active_branch_name
    branches = Map.delete(chat.branches, name)
    put(%{chat | branches: branches, active_branch_name: active}, %{branch | name: new_name})
  end

  @doc """
  Deletes a branch, and returns the new chat. What other branches share with it stays.

  Raises `AshAgent.Context.Error` with `{:active_branch, name}` or `{:unknown_branch, name, names}`.

  ## Examples

      iex> chat = AshAgent.ChatContext.new() |> AshAgent.ChatContext.branch("idea")
      iex> chat |> AshAgent.ChatContext.delete_branch("idea") |> AshAgent.ChatContext.branches() |> length()
      1

      iex> AshAgent.ChatContext.new() |> AshAgent.ChatContext.delete_branch("main")
      ** (AshAgent.Context.Error) "main" is the active branch, which cannot be deleted; switch/2 to another one first
  """
  @doc since: "0.1.0"
  @spec delete_branch(t(), String.t()) :: t()
  def delete_branch(%__MODULE__{} = chat, name) when is_binary(name) do
    branch = named!(chat, name)
    if name == chat.active_branch_name, do: raise(Error, reason: {:active_branch, name})
    %{chat | branches: Map.delete(chat.branches, branch.name)}
  end

  @doc """
  Puts other values into the settings that are given, and returns the new chat. See `AshAgent.ChatContext.Config.put/2`.

  ## Examples

      iex> chat = AshAgent.ChatContext.new(config: [model_id: "m1"]) |> AshAgent.ChatContext.put_config(max_turns: 5)
      iex> {chat.config.model_id, chat.config.max_turns}
      {"m1", 5}
  """
  @doc since: "0.1.0"
  @spec put_config(t(), keyword() | map()) :: t()
  def put_config(%__MODULE__{} = chat, fields) when is_list(fields) or is_map(fields) do
    active(chat)
    %{chat | config: Config.put(chat.config, fields)}
  end

  @spawn_options [
    :seed,
    :from,
    :input,
    :id,
    :config,
    :system_prompt,
    :user_prompt,
    :at,
    branch: "main"
  ]

  @doc """
  Makes a child of a chat: a chat of its own whose `parent_id` is this one's id. The parent is as it was.

  With `:seed`, the child begins with a copy of these iterations, numbered from 1 under the child's own id. It has the
  messages as they were added, with the parent's masks and limit on results; the parent's prompts, metadata and reports
  on tokens stay with the parent. The copy costs O(what the iterations hold).

  Raises `AshAgent.Context.Error` with `{:unknown_branch, name, names}`, `{:unknown_iteration, number, first..last}`, or
  `{:pending_tool_calls, ids}` when calls of the last of the iterations have no result yet.

  ## Options

    * `:seed` - a range of iterations of the parent, such as `2..4`. Defaults to none.
    * `:from` - the name of the parent's branch that they are taken from. Defaults to the active one.
    * `:input` - a message of the user, behind those of the seed: the task. Defaults to none.
    * `:id` - the child's id, other than the parent's. Defaults to a new UUID v4.
    * `:config` - as in `new/1`. Defaults to the parent's.
    * `:branch`, `:system_prompt`, `:user_prompt`, `:at` - as in `new/1`. There are no prompts by default.

  ## Examples

      iex> alias AshAgent.{ChatContext, Context}
      iex> chat = ChatContext.new(input: "Plan a trip", id: "parent") |> ChatContext.update_context(&Context.add_assistant_message(&1, "To Rome!"))
      iex> child = ChatContext.spawn_child(chat, seed: 1..1, input: "Find a hotel", system_prompt: "You find hotels.")
      iex> child.parent_id
      "parent"
      iex> child |> ChatContext.active() |> Map.fetch!(:context) |> Context.to_messages() |> Enum.map(& &1.content)
      ["You find hotels.", "Plan a trip", "To Rome!", "Find a hotel"]
  """
  @doc since: "0.1.0"
  @spec spawn_child(t(), keyword()) :: t()
  def spawn_child(%__MODULE__{} = parent, opts \\ []) when is_list(opts) do
    opts = Keyword.validate!(opts, @spawn_options)
    from = named!(parent, opts[:from])
    id = id(opts)

    if id == parent.id,
      do:
        raise(
          ArgumentError,
          "expected :id to be another one than the parent's, got: #{inspect(id)}"
        )

    context = seeded(seed(opts[:seed]), from.context, id, opts)

    own =
      opts |> Keyword.take([:system_prompt, :user_prompt, :at, :branch]) |> Keyword.put(:id, id)

    own = Keyword.put(own, :config, opts[:config] || parent.config)
    %{begin(context, own) | parent_id: parent.id}
  end

  defp seeded(nil, _parent, id, opts), do: opened(opts[:input], id, opts[:at])

  defp seeded(range, parent, id, opts) do
    context = Stored.seed(parent, range, id, time(opts[:at]))

    if opts[:input],
      do: Context.add_user_message(context, opts[:input], Keyword.take(opts, [:at])),
      else: context
  end

  defp seed(nil), do: nil

  defp seed(%Range{first: first, last: last, step: 1} = range) when first > 0 and last >= first,
    do: range

  defp seed(other) do
    raise ArgumentError,
          "expected :seed to be a range of iterations such as 1..3, got: #{inspect(other)}"
  end

  @doc """
  Tells a chat what its child has found: appends a message of the user with the summary, and returns the new chat.

  The message's metadata is `%{child: %{id: id, usage: usage}}` with the child's id and what
  `AshAgent.Context.get_cumulative_tokens/1` tells of its active branch. `summary` is text or parts.

  Raises `AshAgent.Context.Error` with `{:not_a_child, child_id, parent_id}` for the child of another chat, with
  `{:pending_tool_calls, ids}` while calls wait for their results (answer the call that the child was spawned for with
  `AshAgent.Context.add_tool_results/3` instead), or with `{:unknown_branch, name, names}`.

  ## Options

    * `:branch` - the name of the branch that gets the message. Defaults to the active one.
    * `:at` - the time of the message, a `DateTime`. Defaults to now.

  ## Examples

      iex> alias AshAgent.{ChatContext, Context}
      iex> chat = ChatContext.new(input: "Plan a trip") |> ChatContext.update_context(&Context.add_assistant_message(&1, "To Rome!"))
      iex> child = ChatContext.spawn_child(chat, input: "Find a hotel", id: "child_1")
      iex> chat = ChatContext.complete_child(chat, child, "Hotel Roma is free.")
      iex> [%{content: content, metadata: %{child: %{id: id}}}] = Context.get_iteration_messages(ChatContext.active(chat).context, 2)
      iex> {content, id}
      {"Hotel Roma is free.", "child_1"}
  """
  @doc since: "0.1.0"
  @spec complete_child(t(), t(), String.t() | [Context.part()], keyword()) :: t()
  def complete_child(parent, child, summary, opts \\ [])

  def complete_child(
        %__MODULE__{id: id} = parent,
        %__MODULE__{parent_id: id} = child,
        summary,
        opts
      )
      when (is_binary(summary) or is_list(summary)) and is_list(opts) do
    opts = Keyword.validate!(opts, [:branch, :at])
    usage = Context.get_cumulative_tokens(active(child).context)
    stamp = [metadata: %{child: %{id: child.id, usage: usage}}] ++ Keyword.take(opts, [:at])

    update_context(
      parent,
      &Context.add_user_message(&1, summary, stamp),
      Keyword.take(opts, [:branch])
    )
  end

  def complete_child(%__MODULE__{} = parent, %__MODULE__{} = child, summary, opts)
      when (is_binary(summary) or is_list(summary)) and is_list(opts) do
    active(parent)
    raise Error, reason: {:not_a_child, child.id, parent.id}
  end

  @doc """
  Returns the chat as a map with string keys that holds nothing but JSON data, to be stored.

  `load/1` makes an equal chat of it, also after the map went through JSON text or JSONB. A message that several branches
  have stands in it once: each branch but the first is stored as what it has beyond another one. Settings that are empty
  are left out, and so is what lives in this VM only, see `AshAgent.ChatContext.Config`. The format is versioned and
  described in the guide [Branches](branches.html). Costs O(n) for each branch.

  ## Examples

      iex> alias AshAgent.{ChatContext, Context}
      iex> chat = ChatContext.new(input: "Hello!", id: "c1", config: [mode: :plan], at: ~U[2026-01-01 10:00:00Z])
      iex> dump = ChatContext.dump(ChatContext.branch(chat, "idea"))
      iex> [%{"name" => "main", "context" => context}, %{"name" => "idea", "base" => "main"}] = dump["branches"]
      iex> context == Context.dump(ChatContext.active(chat).context)
      true
      iex> Map.delete(dump, "branches")
      %{"version" => 1, "id" => "c1", "config" => %{"mode" => %{"$atom" => "plan"}}, "active_branch" => "main"}
  """
  @doc since: "0.1.0"
  @spec dump(t()) :: map()
  def dump(%__MODULE__{} = chat), do: Stored.dump(chat)

  @doc """
  Makes a chat of what `dump/1` gave and returns `{:ok, chat}` or `{:error, error}`.

  Branches share again what they shared. The data may come from anywhere: whatever is wrong with it is an error with the
  path to it, and it never makes atoms; see `AshAgent.Context.load/1`.

  ## Options

    * `:approvals`, `:structs` - how far the document is believed, as in `AshAgent.Context.load/1`: about all branches, and
      `:structs` about the settings as well. Default to `:keep`.

  The settings of a chat that a stranger sent are the stranger's, whatever the options: put your own `permission_rules`,
  `allowed_tools`, `mcp_servers` and `toolboxes` in their place with `put_config/2` before an agent runs.

  ## Examples

      iex> chat = AshAgent.ChatContext.new(input: "Hello!") |> AshAgent.ChatContext.branch("idea")
      iex> {:ok, copy} = AshAgent.ChatContext.load(AshAgent.ChatContext.dump(chat))
      iex> AshAgent.ChatContext.equal?(chat, copy)
      true

      iex> dump = AshAgent.ChatContext.dump(AshAgent.ChatContext.new())
      iex> {:error, error} = AshAgent.ChatContext.load(%{dump | "active_branch" => "idea"})
      iex> error.reason
      {:invalid, ["active_branch"], "the name of one of the branches"}
  """
  @doc since: "0.1.0"
  @spec load(term(), keyword()) :: {:ok, t()} | {:error, Error.t()}
  def load(document, opts \\ []) when is_list(opts) do
    Trust.check!(opts)
    Stored.load(document, opts)
  end

  @doc """
  Like `load/2`, but returns the chat or raises `AshAgent.Context.Error`.

  ## Examples

      iex> chat = AshAgent.ChatContext.new(id: "c1")
      iex> AshAgent.ChatContext.load!(AshAgent.ChatContext.dump(chat)).id
      "c1"
  """
  @doc since: "0.1.0"
  @spec load!(term(), keyword()) :: t()
  def load!(document, opts \\ []), do: document |> load(opts) |> bang!()

  @doc """
  Returns the chat as JSON text: the text of `dump/1`.

  ## Examples

      iex> chat = AshAgent.ChatContext.new(input: "Hello!")
      iex> text = AshAgent.ChatContext.to_snapshot(chat)
      iex> AshAgent.Context.JSON.decode!(text) == AshAgent.ChatContext.dump(chat)
      true
  """
  @doc since: "0.1.0"
  @spec to_snapshot(t()) :: binary()
  def to_snapshot(%__MODULE__{} = chat), do: Stored.to_snapshot(chat)

  @doc """
  Makes a chat of JSON text and returns `{:ok, chat}` or `{:error, error}`, as `load/2` does of a map, whose options it
  takes.

  ## Examples

      iex> chat = AshAgent.ChatContext.new(input: "Hello!")
      iex> {:ok, copy} = AshAgent.ChatContext.from_snapshot(AshAgent.ChatContext.to_snapshot(chat))
      iex> AshAgent.ChatContext.equal?(chat, copy)
      true
  """
  @doc since: "0.1.0"
  @spec from_snapshot(binary(), keyword()) :: {:ok, t()} | {:error, Error.t()}
  def from_snapshot(text, opts \\ []) when is_binary(text) and is_list(opts) do
    Trust.check!(opts)
    with {:ok, document} <- JSON.decode(text), do: Stored.load(document, opts)
  end

  @doc """
  Like `from_snapshot/2`, but returns the chat or raises `AshAgent.Context.Error`.

  ## Examples

      iex> chat = AshAgent.ChatContext.new(id: "c1")
      iex> AshAgent.ChatContext.from_snapshot!(AshAgent.ChatContext.to_snapshot(chat)).id
      "c1"
  """
  @doc since: "0.1.0"
  @spec from_snapshot!(binary(), keyword()) :: t()
  def from_snapshot!(text, opts \\ []), do: text |> from_snapshot(opts) |> bang!()

  @doc """
  Tells whether two chats have equal contents: ids, settings, and branches of the same names in the same order with equal
  contexts. `==` compares handles and does not tell.

  Costs O(n) at most; parts that the two share are not compared.

  ## Examples

      iex> chat = AshAgent.ChatContext.new(input: "Hello!")
      iex> AshAgent.ChatContext.equal?(chat, AshAgent.ChatContext.put_config(chat, max_turns: 5))
      false
  """
  @doc since: "0.1.0"
  @spec equal?(t(), t()) :: boolean()
  def equal?(%__MODULE__{} = a, %__MODULE__{} = b) do
    pairs = Enum.zip(branches(a), branches(b))
    head(a) == head(b) and Enum.all?(pairs, fn {a, b} -> Context.equal?(a.context, b.context) end)
  end

  defp head(chat) do
    branches = for branch <- branches(chat), do: {branch.name, branch.extra}
    {chat.id, chat.parent_id, chat.config, chat.active_branch_name, chat.extra, branches}
  end

  defp put(chat, branch), do: %{chat | branches: Map.put(chat.branches, branch.name, branch)}

  defp put_prompts(branch, opts, stamp) do
    branch =
      if Keyword.has_key?(opts, :system_prompt),
        do: Branch.put_system_prompt(branch, prompt!(opts), stamp),
        else: branch

    if Keyword.has_key?(opts, :user_prompt),
      do: Branch.put_user_prompt(branch, user_prompt!(opts), stamp),
      else: branch
  end

  defp prompt!(opts) do
    case opts[:system_prompt] do
      prompt when is_binary(prompt) or is_list(prompt) or is_nil(prompt) ->
        prompt

      other ->
        raise ArgumentError,
              "expected :system_prompt to be text or text parts, got: #{inspect(other)}"
    end
  end

  defp user_prompt!(opts) do
    case opts[:user_prompt] do
      prompt when is_binary(prompt) or is_nil(prompt) -> prompt
      other -> raise ArgumentError, "expected :user_prompt to be text, got: #{inspect(other)}"
    end
  end

  defp chosen!(chat, opts), do: named!(chat, opts[:branch])

  defp named!(chat, nil), do: active(chat)

  defp named!(chat, name) when is_binary(name) do
    with :error <- fetch_branch(chat, name) do
      raise Error, reason: {:unknown_branch, name, Enum.map(branches(chat), & &1.name)}
    else
      {:ok, branch} -> branch
    end
  end

  defp named!(_chat, other) do
    raise ArgumentError, "expected the name of a branch, got: #{inspect(other)}"
  end

  # What no function of AshAgent.Context sees, a chat has to refuse itself: the handles of another node.
  defp own_branches!(chat) do
    active(chat)
    chat.branches
  end

  defp own!(branch) do
    Handle.check!(branch.context)
    branch
  end

  defp refuse_known!(chat, name) do
    if is_map_key(own_branches!(chat), name), do: raise(Error, reason: {:branch_exists, name})
  end

  defp name!(name) do
    if is_binary(name) and name != "" and String.valid?(name),
      do: name,
      else:
        raise(
          ArgumentError,
          "expected a branch's name to be non-empty text, got: #{inspect(name)}"
        )
  end

  defp id(opts) do
    case opts[:id] do
      nil -> nil
      id when is_binary(id) and id != "" -> if String.valid?(id), do: id, else: wrong_id!(id)
      other -> wrong_id!(other)
    end
  end

  @spec wrong_id!(term()) :: no_return()
  defp wrong_id!(id),
    do: raise(ArgumentError, "expected :id to be non-empty text, got: #{inspect(id)}")

  defp time(at) do
    case at do
      nil -> nil
      %DateTime{} -> at
      other -> raise ArgumentError, "expected :at to be a DateTime, got: #{inspect(other)}"
    end
  end

  defp bang!({:ok, chat}), do: chat
  defp bang!({:error, error}), do: raise(error)

  defimpl Inspect do
    # Counts only: this ends up in logs.
    def inspect(chat, _opts) do
      active = Map.fetch!(chat.branches, chat.active_branch_name)
      branches = if map_size(chat.branches) == 1, do: "branch", else: "branches"

      "#AshAgent.ChatContext<#{map_size(chat.branches)} #{branches}, active: #{Kernel.inspect(active.context)}>"
    end
  end
end
