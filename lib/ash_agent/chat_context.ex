defmodule AshAgent.ChatContext do
  @moduledoc """
  A chat: named branches of one conversation, one of them active, and the settings of its agent.

      iex> alias AshAgent.{ChatContext, Context}
      iex> chat = ChatContext.new(input: "Name a city.", system_prompt: "Be brief.", config: [model_id: "m1"])
      iex> chat = ChatContext.update_context(chat, &Context.add_assistant_message(&1, "Rome"))
      iex> chat = ChatContext.branch(chat, "poem", system_prompt: "Answer in rhymes.")
      iex> chat = chat |> ChatContext.switch("poem") |> ChatContext.update_context(&Context.add_user_message(&1, "And why?"))
      iex> for branch <- ChatContext.branches(chat), do: {branch.name, Context.count_messages(branch.context)}
      [{"main", 3}, {"poem", 4}]
      iex> ChatContext.active(chat).system_prompt
      "Answer in rhymes."

  A **branch** is a named `AshAgent.Context`. Branching costs the same for a conversation of any length: branches share
  their messages in memory, and `dump/1` stores a message once, however many branches have it. Use the functions of
  `AshAgent.Context` on a branch through `update_context/3`.

  Each branch has its own system prompt and user prompt. In requests, the user prompt follows the system prompt.

  A **child** is a chat with a `parent_id`, for an agent that works on a part of the task: see `spawn_child/2` and
  `complete_child/4`. The guide [Branches](branches.html) shows both.

  ## Errors

  A caller's mistake raises `ArgumentError`. An error that data can cause raises
  `AshAgent.Context.Error`, for instance with `{:unknown_branch, name, names}`; functions that have a `!` twin return it
  as `{:error, error}`.

  ## Sharing and lifetime

  A chat is an immutable value: every function that changes it returns a new one. It holds handles, so handing it to
  another process costs the same for conversations of any length. Like a context, it works only on the node that made it;
  elsewhere, every function raises an `ArgumentError` that names the node. To store or send a chat, use `dump/1` or
  `to_snapshot/1`. Compare chats with `equal?/2`, not with `==`.
  """

  use AshAgent.Arguments

  alias AshAgent.ChatContext.{Branch, Config, Stored}
  alias AshAgent.Context
  alias AshAgent.Context.{Calls, Error, Handle, JSON, Options, Reply, Trust}
  alias AshAgent.Context.Options.Kinds
  alias AshAgent.Options, as: Check

  @enforce_keys [:id, :config, :branches, :active_branch_name, :made]
  defstruct [:id, :parent_id, :config, :branches, :active_branch_name, :made, extra: %{}]

  @typedoc """
  A chat.

    * `id` - a non-empty string
    * `parent_id` - the id of the parent, or `nil`
    * `config` - the settings, see `t:AshAgent.ChatContext.Config.t/0`
    * `branches` - the branches by name; `branches/1` returns them in order
    * `active_branch_name` - the name of the active branch

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

  @doc """
  Makes a chat with one branch.

  ## Options

  #{Options.docs(:chat_new)}

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
    opts = Options.validate!(opts, :chat_new)

    if opts[:input] != nil and opts[:context] != nil do
      AshAgent.Caller.refuse!("options :input and :context exclude each other: give one of them")
    end

    (opts[:context] || Branch.open_context(opts[:input], opts[:id], opts[:at])) |> begin(opts)
  end

  defp begin(context, opts) do
    name = check_name!(opts[:branch])

    branch =
      name
      |> Branch.new(context, number: 1)
      |> Branch.put_prompts(opts, Keyword.take(opts, [:at]))

    %__MODULE__{
      id: opts[:id] || context[:id],
      config: Config.new(opts[:config] || []),
      branches: %{name => branch},
      active_branch_name: name,
      made: 1
    }
  end

  @doc """
  Adds a branch that starts from another one, and returns the new chat. The active branch stays active.

  Costs O(log n); no message is copied.

  Raises `AshAgent.Context.Error` with `{:branch_exists, name}`, `{:unknown_branch, name, names}` or `{:unknown_iteration,
  number, first..last}`.

  ## Options

  #{Options.docs(:branch)}

  ## Examples

      iex> alias AshAgent.{ChatContext, Context}
      iex> chat = ChatContext.new(input: "One") |> ChatContext.update_context(&Context.add_assistant_message(&1, "1"))
      iex> chat = ChatContext.update_context(chat, &Context.add_user_message(&1, "Two"))
      iex> chat = ChatContext.branch(chat, "again", from: "main", iteration: 1)
      iex> chat.branches["again"].context |> Context.to_messages()
      [%{role: :user, content: "One"}, %{role: :assistant, content: "1"}]

      iex> AshAgent.ChatContext.new() |> AshAgent.ChatContext.branch("idea", from: "plan")
      ** (AshAgent.Context.Error) unknown branch "plan"; the chat has the branches ["main"]
  """
  @doc since: "0.1.0"
  @spec branch(t(), String.t(), keyword()) :: t()
  def branch(%__MODULE__{} = chat, name, opts \\ []) when is_binary(name) and is_list(opts) do
    opts = Options.validate!(opts, :branch)
    refuse_known!(chat, check_name!(name))
    %{context: context} = origin = find!(chat, opts[:from])
    context = if to = opts[:iteration], do: Context.rewind(context, to: to), else: context
    late? = Calls.late_calls(context) != []
    # A branch is no change of the conversation, whose time it keeps.
    context =
      if late?, do: Calls.leave_late_calls(context, at: context[:updated_at]), else: context

    made = chat.made + 1
    branch = Branch.fork(origin, name, made, context)
    put(%{chat | made: made}, Branch.put_prompts(branch, opts, []))
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
    do: %{chat | active_branch_name: find!(chat, name).name}

  @doc """
  Returns the active branch.

  ## Examples

      iex> AshAgent.ChatContext.active(AshAgent.ChatContext.new(input: "Hello!")).name
      "main"
  """
  @doc since: "0.1.0"
  @spec active(t()) :: Branch.t()
  def active(%__MODULE__{branches: branches, active_branch_name: name} = _chat) do
    branch = Map.fetch!(branches, name)
    Handle.check!(branch.context)
    branch
  end

  # A handle of another node reaches no function of AshAgent.Context here, so it is looked for.
  defp all(chat) do
    active(chat)
    chat.branches
  end

  # Without a name, the active branch.
  defp find!(chat, nil), do: active(chat)

  defp find!(chat, name) do
    with :error <- Map.fetch(all(chat), name),
         do: raise(Error, reason: {:unknown_branch, name, Enum.map(branches(chat), & &1.name)}),
         else: ({:ok, branch} -> branch)
  end

  defp put(chat, %Branch{name: name} = branch),
    do: %{chat | branches: Map.put(chat.branches, name, branch)}

  defp refuse_known!(chat, name),
    do: if(is_map_key(all(chat), name), do: raise(Error, reason: {:branch_exists, name}))

  defp check_name!(name) do
    if Kinds.name?(name) do
      name
    else
      words = "expected a branch's name to be a non-empty UTF-8 string, got: #{Check.kind(name)}"
      AshAgent.Caller.refuse!(words)
    end
  end

  @doc """
  Returns `{:ok, branch}` for the branch with this name, or `:error`.

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
    do: Map.fetch(all(chat), name)

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
    do: chat |> all() |> Map.values() |> Enum.sort_by(& &1.number)

  @doc """
  Replaces a branch's context with the one that `fun` returns for it, and returns the new chat.

  The branch's prompts are read from the new context. If `fun` raises, the chat stays as it was.

  Raises `AshAgent.Context.Error` with `{:unknown_branch, name, names}`.

  ## Options

  #{Options.docs(:update_context)}

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
    opts = Options.validate!(opts, :update_context)
    branch = find!(chat, opts[:branch])

    case fun.(branch.context) do
      %Context{} = context ->
        put(chat, Branch.put_context(branch, context))

      other ->
        AshAgent.Caller.refuse!(
          "expected the function to return a context, got: #{Check.kind(other)}"
        )
    end
  end

  @doc """
  Replaces a branch's system prompt with a string or text parts, and returns the new chat. `nil` removes it.

  The other branches keep theirs. Raises `AshAgent.Context.Error` with `{:unknown_branch, name, names}`.

  ## Options

  #{Options.docs(:put_prompt)}

  ## Examples

      iex> chat = AshAgent.ChatContext.new(input: "Hello!") |> AshAgent.ChatContext.put_system_prompt("Be kind.")
      iex> AshAgent.ChatContext.active(chat).system_prompt
      "Be kind."
  """
  @doc since: "0.1.0"
  @spec put_system_prompt(t(), Context.content(), keyword()) :: t()
  def put_system_prompt(%__MODULE__{} = chat, prompt, opts \\ [])
      when (is_binary(prompt) or is_list(prompt) or is_nil(prompt)) and is_list(opts) do
    put_prompt(chat, opts, &Branch.put_system_prompt(&1, prompt, &2))
  end

  defp put_prompt(chat, opts, fun) do
    opts = Options.validate!(opts, :put_prompt)
    branch = find!(chat, opts[:branch])
    put(chat, fun.(branch, Keyword.take(opts, [:at])))
  end

  @doc """
  Replaces a branch's user prompt, which follows the system prompt in requests, and returns the new chat. `nil` or a blank
  string removes it.

  Takes the options of `put_system_prompt/3` and raises the same errors.

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
    put_prompt(chat, opts, &Branch.put_user_prompt(&1, prompt, &2))
  end

  @doc """
  Renames a branch, and returns the new chat. The branch keeps its place in the order, and stays active if it was.

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
    branch = find!(chat, name)
    if new_name != name, do: refuse_known!(chat, check_name!(new_name))
    active = if chat.active_branch_name == name, do: new_name, else: chat.active_branch_name
    branches = Map.delete(chat.branches, name)
    chat = %{chat | branches: branches, active_branch_name: active}
    put(chat, %{branch | name: new_name})
  end

  @doc """
  Deletes a branch, and returns the new chat. Other branches keep the messages that they share with it.

  Raises `AshAgent.Context.Error` with `{:active_branch, name}` or `{:unknown_branch, name, names}`.

  ## Examples

      iex> chat = AshAgent.ChatContext.new() |> AshAgent.ChatContext.branch("idea")
      iex> chat |> AshAgent.ChatContext.delete_branch("idea") |> AshAgent.ChatContext.branches() |> length()
      1

      iex> AshAgent.ChatContext.new() |> AshAgent.ChatContext.delete_branch("main")
      ** (AshAgent.Context.Error) "main" is the active branch, which cannot be deleted; switch to another branch with switch/2 first
  """
  @doc since: "0.1.0"
  @spec delete_branch(t(), String.t()) :: t()
  def delete_branch(%__MODULE__{} = chat, name) when is_binary(name) do
    branch = find!(chat, name)
    if name == chat.active_branch_name, do: raise(Error, reason: {:active_branch, name})
    %{chat | branches: Map.delete(chat.branches, branch.name)}
  end

  @doc """
  Changes the given settings, and returns the new chat. See `AshAgent.ChatContext.Config.put/2`.

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

  @doc """
  Makes a child: a new chat whose `parent_id` is the id of the given one. The parent does not change.

  With `:seed`, the child starts with a copy of these iterations, numbered from 1 under its own id. It has the messages as
  they were added, with the parent's limit on results. The parent's prompts, metadata and reports on tokens are
  not copied. The copy costs O(size of the iterations). The child has the parent's masks, with `:seed` and without.

  Raises `AshAgent.Context.Error` with `{:unknown_branch, name, names}`, `{:unknown_iteration, number, first..last}`, or
  `{:pending_tool_calls, ids}` if calls of the last iteration have no result yet.

  ## Options

  #{Options.docs(:spawn_child)}

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
    opts = Options.validate!(opts, :spawn_child)
    from = find!(parent, opts[:from])

    if opts[:id] == parent.id do
      AshAgent.Caller.refuse!(
        "invalid value for option :id: it is the parent's own; give the child another one, or none for a new UUID"
      )
    end

    own = Keyword.take(opts, [:id, :system_prompt, :user_prompt, :at, :branch])
    own = Keyword.put(own, :config, opts[:config] || parent.config)
    %{(opts[:seed] |> seed(from.context, opts) |> begin(own)) | parent_id: parent.id}
  end

  defp seed(nil, parent, opts) do
    child = Branch.open_context(opts[:input], opts[:id], opts[:at])

    case Context.View.view(parent).masks do
      [] -> child
      masks -> Context.View.put_masks(child, masks, Keyword.take(opts, [:at]))
    end
  end

  defp seed(range, parent, opts) do
    context = Stored.seed(parent, range, opts[:id], opts[:at])

    if opts[:input],
      do: Context.add_user_message(context, opts[:input], Keyword.take(opts, [:at])),
      else: context
  end

  @doc """
  Adds a child's summary to its parent as a user message, and returns the new chat.

  The message's metadata is `%{child: %{id: id, usage: usage}}` with the child's id and the tokens that
  `AshAgent.Context.Tokens.get_cumulative_tokens/1` returns for its active branch. `summary` is a string or parts.

  Raises `AshAgent.Context.Error` with `{:not_a_child, child_id, parent_id}` for the child of another chat,
  `{:unknown_branch, name, names}`, or `{:pending_tool_calls, ids}` while calls wait for their results. If the child was
  spawned to answer such a call, use `AshAgent.Context.add_tool_results/3` instead.

  ## Options

  #{Options.docs(:complete_child)}

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
  def complete_child(%__MODULE__{} = parent, %__MODULE__{} = child, summary, opts \\ [])
      when (is_binary(summary) or is_list(summary)) and is_list(opts) do
    if child.parent_id != parent.id do
      active(parent)
      raise Error, reason: {:not_a_child, child.id, parent.id}
    end

    opts = Options.validate!(opts, :complete_child)
    usage = Context.Tokens.get_cumulative_tokens(active(child).context)
    stamp = [metadata: %{child: %{id: child.id, usage: usage}}] ++ Keyword.take(opts, [:at])

    update_context(
      parent,
      &Context.add_user_message(&1, summary, stamp),
      Keyword.take(opts, [:branch])
    )
  end

  @doc """
  Returns the chat as a map with string keys that contains only JSON data, to be stored.

  `load/1` makes an equal chat from it, also after the map went through JSON text or JSONB. A message that several
  branches have is stored once: each branch but the first is stored as its difference from another one. Empty settings are
  left out, and so is anything that lives only in this VM, see `AshAgent.ChatContext.Config`. The format is versioned and
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
  def dump(%__MODULE__{} = chat), do: Stored.dump(chat, branches(chat))

  @doc """
  Makes a chat from a map that `dump/1` returned, and returns `{:ok, chat}` or `{:error, error}`.

  Branches share again what they shared before. The data may come from anywhere: an error has the path to the problem, and
  loading never creates atoms; see `AshAgent.Context.load/1`.

  ## Options

  #{Options.docs(:load)}

  They apply to all branches, and `:structs` to the settings as well.

  Whatever the options, the settings in a document are still its author's: before an agent runs on a chat from elsewhere, replace
  `permission_rules`, `allowed_tools`, `mcp_servers` and `toolboxes` with your own by `put_config/2`.

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
  def load(document, opts \\ []) when is_list(opts),
    do: with({:ok, fields} <- Stored.load(document, opts), do: {:ok, struct!(__MODULE__, fields)})

  @doc """
  Like `load/2`, but returns the chat or raises `AshAgent.Context.Error`.

  ## Examples

      iex> chat = AshAgent.ChatContext.new(id: "c1")
      iex> AshAgent.ChatContext.load!(AshAgent.ChatContext.dump(chat)).id
      "c1"
  """
  @doc since: "0.1.0"
  @spec load!(term(), keyword()) :: t()
  def load!(document, opts \\ []), do: document |> load(opts) |> Reply.bang!()

  @doc """
  Returns the chat as JSON text, equal to the encoded `dump/1`.

  ## Examples

      iex> chat = AshAgent.ChatContext.new(input: "Hello!")
      iex> text = AshAgent.ChatContext.to_snapshot(chat)
      iex> AshAgent.Context.JSON.decode!(text) == AshAgent.ChatContext.dump(chat)
      true
  """
  @doc since: "0.1.0"
  @spec to_snapshot(t()) :: binary()
  def to_snapshot(%__MODULE__{} = chat), do: Stored.to_snapshot(chat, branches(chat))

  @doc """
  Makes a chat from the JSON text that `to_snapshot/1` returned, and returns `{:ok, chat}` or `{:error, error}`. Takes the
  options of `load/2`.

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
    with {:ok, document} <- JSON.decode(text), do: load(document, opts)
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
  def from_snapshot!(text, opts \\ []), do: text |> from_snapshot(opts) |> Reply.bang!()

  @doc """
  Returns whether two chats have equal contents: ids, settings, and branches with the same names in the same order and
  equal contexts. `==` compares handles instead.

  Costs O(n) at most; shared parts are not compared.

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
end
