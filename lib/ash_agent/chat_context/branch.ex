defmodule AshAgent.ChatContext.Branch do
  @moduledoc """
  A branch of an `AshAgent.ChatContext`: a named conversation.

      iex> chat = AshAgent.ChatContext.new(input: "Hello!", system_prompt: "Be brief.", user_prompt: "I am Ann.")
      iex> branch = AshAgent.ChatContext.active(chat)
      iex> {branch.name, branch.system_prompt, branch.user_prompt}
      {"main", "Be brief.", "I am Ann."}
      iex> AshAgent.Context.request!(branch.context, :anthropic)["system"]
      "Be brief.\\n\\nI am Ann."

  Both prompts live in the context. The fields show them and are updated whenever the context changes, so read a branch from its
  chat, and change it with the chat's functions.
  """

  alias AshAgent.Context

  @block "user_prompt"

  @enforce_keys [:name, :context, :number]
  defstruct [:name, :context, :number, :origin, system_prompt: nil, user_prompt: nil, extra: %{}]

  @typedoc """
  A branch.

    * `name` - a non-empty string, unique in its chat
    * `context` - its conversation
    * `system_prompt` - the context's system prompt, see `AshAgent.Context.system_prompt/1`
    * `user_prompt` - text that follows the system prompt in requests, or `nil`

  Other fields are private.
  """
  @type t :: %__MODULE__{
          name: String.t(),
          context: Context.t(),
          system_prompt: Context.content(),
          user_prompt: String.t() | nil,
          number: pos_integer(),
          origin: pos_integer() | nil,
          extra: map()
        }

  @doc false
  def open_context(nil, id, at) do
    times = if at, do: [created_at: at, updated_at: at], else: []
    iteration = if at, do: [iterations: [%{number: 1, messages: [], started_at: at}]], else: []
    Context.create!(if(id, do: [id: id], else: []) ++ times ++ iteration)
  end

  def open_context(input, id, at), do: Context.new(input, id: id, at: at)

  @doc false
  def new(name, context, fields),
    do: __MODULE__ |> struct!([name: name, context: context] ++ fields) |> read_prompts()

  @doc false
  def fork(%__MODULE__{} = origin, name, number, context) do
    put_context(
      %{origin | name: name, number: number, origin: origin.number, extra: %{}},
      context
    )
  end

  @doc false
  # The prompts are the context's: there is no other way to set them.
  def put_context(%__MODULE__{context: %{ref: ref}} = branch, %Context{ref: ref}), do: branch
  def put_context(branch, %Context{} = context), do: read_prompts(%{branch | context: context})

  defp read_prompts(%{context: context} = branch) do
    %{branch | system_prompt: Context.system_prompt(context), user_prompt: user_prompt(context)}
  end

  defp user_prompt(context) do
    with {@block, text} <- List.keyfind(Context.View.view(context).blocks, @block, 0), do: text
  end

  @doc false
  def put_prompts(%__MODULE__{} = branch, opts, stamp) do
    branch =
      if Keyword.has_key?(opts, :system_prompt),
        do: put_system_prompt(branch, opts[:system_prompt], stamp),
        else: branch

    if Keyword.has_key?(opts, :user_prompt),
      do: put_user_prompt(branch, opts[:user_prompt], stamp),
      else: branch
  end

  @doc false
  def put_system_prompt(%__MODULE__{} = branch, prompt, opts),
    do: put_context(branch, Context.put_system_prompt(branch.context, prompt, opts))

  @doc false
  # A blank text would leave blank lines after the system prompt.
  def put_user_prompt(%__MODULE__{} = branch, prompt, opts) do
    blank? = prompt != nil and String.valid?(prompt) and String.trim(prompt) == ""
    prompt = if blank?, do: nil, else: prompt
    put_context(branch, Context.View.put_prompt_block(branch.context, @block, prompt, opts))
  end

  defimpl Inspect do
    # Counts only: this ends up in logs.
    def inspect(branch, _opts),
      do: "#AshAgent.ChatContext.Branch<#{Kernel.inspect(branch.context)}>"
  end
end
