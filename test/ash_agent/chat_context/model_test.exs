defmodule AshAgent.ChatContext.ModelTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Generators

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.Context.{Error, JSON}

  # Random operations on a chat and on plain maps: a branch is its prompts and a list of iterations of messages. Every
  # message has a text of its own.

  @names ~w(main a b c d e)

  defp start do
    chat = ChatContext.new(input: "<0>", system_prompt: "S0")
    branch = %{system: "S0", user: nil, iterations: [[{:user, "<0>"}]], ended: false}
    {chat, %{order: ["main"], branches: %{"main" => branch}, active: "main"}}
  end

  defp operation(number) do
    name = one_of(@names)
    text = "<#{number}>"

    weighted([
      {10, {:say, one_of([:user, :assistant]), text, one_of([nil, name])}},
      {6,
       {:branch, name, one_of([nil, one_of(@names)]), one_of([nil, between(1, 6)]),
        one_of([nil, "S#{number}"])}},
      {3, {:switch, name}},
      {2, {:rename, name, one_of(@names)}},
      {2, {:delete, name}},
      {1, {:take, one_of(@names), name}},
      {1, {:rewind, between(1, 6)}},
      {2, {:prompt, one_of([:system, :user]), one_of([nil, text <> "P"]), one_of([nil, name])}}
    ])
  end

  # On the chat

  defp run(chat, {:say, role, text, name}),
    do: ChatContext.update_context(chat, &add(&1, role, text), name_option(:branch, name))

  defp run(chat, {:branch, name, from, at, system}) do
    opts =
      name_option(:from, from) ++
        name_option(:iteration, at) ++ name_option(:system_prompt, system)

    ChatContext.branch(chat, name, opts)
  end

  defp run(chat, {:switch, name}), do: ChatContext.switch(chat, name)
  defp run(chat, {:rename, name, new}), do: ChatContext.rename_branch(chat, name, new)
  defp run(chat, {:delete, name}), do: ChatContext.delete_branch(chat, name)

  # The context of one branch becomes that of another.
  defp run(chat, {:take, from, name}) do
    case ChatContext.fetch_branch(chat, from) do
      {:ok, branch} -> ChatContext.update_context(chat, fn _ -> branch.context end, branch: name)
      :error -> chat
    end
  end

  defp run(chat, {:rewind, number}),
    do: ChatContext.update_context(chat, &Context.rewind(&1, to: number))

  defp run(chat, {:prompt, :system, text, name}),
    do: ChatContext.put_system_prompt(chat, text, name_option(:branch, name))

  defp run(chat, {:prompt, :user, text, name}),
    do: ChatContext.put_user_prompt(chat, text, name_option(:branch, name))

  defp add(context, :user, text), do: Context.add_user_message(context, text)
  defp add(context, :assistant, text), do: Context.add_assistant_message(context, text)

  defp name_option(_key, nil), do: []
  defp name_option(key, value), do: [{key, value}]

  # On the model: `{:error, kind}`, or the new one.

  defp model(model, {:say, role, text, name}), do: change(model, name, &model_add(&1, role, text))

  defp model(model, {:branch, name, from, at, system}) do
    branch = model.branches[from || model.active]

    cond do
      is_map_key(model.branches, name) ->
        {:error, :branch_exists}

      branch == nil ->
        {:error, :unknown_branch}

      at != nil and at > length(branch.iterations) ->
        {:error, :unknown_iteration}

      true ->
        branch = model_rewind(branch, at || length(branch.iterations))
        branch = if system, do: %{branch | system: system}, else: branch
        %{model | order: model.order ++ [name], branches: Map.put(model.branches, name, branch)}
    end
  end

  defp model(model, {:switch, name}) do
    if is_map_key(model.branches, name),
      do: %{model | active: name},
      else: {:error, :unknown_branch}
  end

  defp model(model, {:rename, name, new}) do
    cond do
      not is_map_key(model.branches, name) ->
        {:error, :unknown_branch}

      name != new and is_map_key(model.branches, new) ->
        {:error, :branch_exists}

      true ->
        {branch, branches} = Map.pop!(model.branches, name)

        %{
          order: Enum.map(model.order, &if(&1 == name, do: new, else: &1)),
          branches: Map.put(branches, new, branch),
          active: if(model.active == name, do: new, else: model.active)
        }
    end
  end

  defp model(%{active: name}, {:delete, name}), do: {:error, :active_branch}

  defp model(model, {:delete, name}) do
    if is_map_key(model.branches, name),
      do: %{model | order: model.order -- [name], branches: Map.delete(model.branches, name)},
      else: {:error, :unknown_branch}
  end

  defp model(model, {:take, from, name}) do
    case model.branches do
      %{^from => branch} -> change(model, name, fn _ -> branch end)
      _ -> model
    end
  end

  defp model(model, {:rewind, number}) do
    if number > length(model.branches[model.active].iterations),
      do: {:error, :unknown_iteration},
      else: change(model, nil, &model_rewind(&1, number))
  end

  defp model(model, {:prompt, key, text, name}), do: change(model, name, &Map.put(&1, key, text))

  defp change(model, name, fun) do
    name = name || model.active

    if is_map_key(model.branches, name),
      do: %{model | branches: Map.update!(model.branches, name, fun)},
      else: {:error, :unknown_branch}
  end

  defp model_add(branch, role, text) do
    last = List.last(branch.iterations)
    next? = branch.ended or (role == :user and Enum.any?(last, &match?({:assistant, _}, &1)))

    iterations =
      if next?,
        do: branch.iterations ++ [[{role, text}]],
        else: List.replace_at(branch.iterations, -1, last ++ [{role, text}])

    %{branch | iterations: iterations, ended: false}
  end

  # An iteration behind which there was another one has ended.
  defp model_rewind(branch, number) do
    if number == length(branch.iterations),
      do: branch,
      else: %{branch | iterations: Enum.take(branch.iterations, number), ended: true}
  end

  defp shown(chat) do
    branches =
      Map.new(chat.branches, fn {name, branch} ->
        assert branch.name == name
        assert branch.system_prompt == Context.system_prompt(branch.context)

        iterations =
          for iteration <- branch.context do
            for %{role: role, content: text} <- iteration.messages,
                role != :system,
                do: {role, text}
          end

        {name, {branch.system_prompt, branch.user_prompt, iterations}}
      end)

    {Enum.map(ChatContext.branches(chat), & &1.name), branches, chat.active_branch_name}
  end

  defp expected(model) do
    branches =
      Map.new(model.branches, fn {name, branch} ->
        {name, {branch.system, branch.user, branch.iterations}}
      end)

    {model.order, branches, model.active}
  end

  defp step(chat, model, operation) do
    chat = {:ok, run(chat, operation)}
    {chat, model(model, operation)}
  rescue
    error in Error -> {{:error, elem(error.reason, 0)}, model(model, operation)}
  end

  defp history(size) do
    Enum.reduce(1..(size * 3), [start()], fn number, [{chat, model} | _] = history ->
      operation = operation(number)

      case step(chat, model, operation) do
        {{:error, kind}, result} ->
          assert {operation, result} == {operation, {:error, kind}}
          history

        {{:ok, chat}, model} ->
          assert {operation, shown(chat)} == {operation, expected(model)}
          [{chat, model} | history]
      end
    end)
  end

  test "a chat is what maps and lists would be, and an old one stays as it was" do
    check_all("branches", [runs: 150, max_size: 20], fn size ->
      for {chat, model} <- history(size), do: assert(shown(chat) == expected(model))
    end)
  end

  test "a loaded chat is equal, and each message stands once in the dump" do
    check_all("dumps of branches", [runs: 150, max_size: 20], fn size ->
      [{chat, model} | _] = history(size)
      dump = ChatContext.dump(chat)
      text = ChatContext.to_snapshot(chat)
      assert JSON.decode!(text) == dump

      for copy <- [ChatContext.load!(dump), ChatContext.from_snapshot!(text)] do
        assert ChatContext.equal?(copy, chat)
        assert shown(copy) == expected(model)
        assert ChatContext.dump(copy) == dump
      end

      for branch <- Map.values(model.branches),
          iteration <- branch.iterations,
          {_role, message} <- iteration do
        assert {message, 1} == {message, length(String.split(text, ~s("#{message}"))) - 1}
      end
    end)
  end

  test "a loaded chat has the same future" do
    check_all("the future of branches", [runs: 60, max_size: 15], fn size ->
      [{chat, model} | _] = history(size)
      copy = chat |> ChatContext.dump() |> ChatContext.load!()

      Enum.reduce(1..size, {copy, model}, fn number, {copy, model} ->
        operation = operation(1_000 + number)

        case step(copy, model, operation) do
          {{:error, kind}, result} ->
            assert result == {:error, kind}
            {copy, model}

          {{:ok, copy}, model} ->
            assert shown(copy) == expected(model)
            {copy, model}
        end
      end)
    end)
  end
end
