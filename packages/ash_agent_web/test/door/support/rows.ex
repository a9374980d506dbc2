defmodule AshAgent.Door.Rows do
  @moduledoc false

  # Each event of a door's table once, in an order in which they can come.

  def events do
    [
      {:step_started, {1, 0}},
      {:thinking_started, "1.0.0"},
      {:thinking, "1.0.0", "Hm. "},
      {:thinking_ended, "1.0.0"},
      {:text_started, "1.0.1"},
      {:text, "1.0.1", "Look: "},
      {:text_ended, "1.0.1"},
      {:file, "1.0.2", "image/png", "iVBORw0KGgo="},
      {:call_started, "1.0.c0", "look"},
      {:call_arguments, "1.0.c0", ~s({"place":"here"})},
      {:call, "1.0.c0", "look", %{"place" => "here"}, :whole},
      {:call_started, "1.0.c1", "fail"},
      {:call, "1.0.c1", "fail", %{}, :none},
      {:call_started, "1.0.c2", "clean_up"},
      {:call, "1.0.c2", "clean_up", %{"path" => "/"}, :none},
      {:call_started, "1.0.c3", "clean_up"},
      {:call, "1.0.c3", "clean_up", %{"path" => "/tmp"}, :none},
      {:call_started, "1.0.c4", "ask_user"},
      {:call, "1.0.c4", "ask_user", %{"question" => "Which seat?"}, :none},
      {:call_started, "1.0.c5", "helper"},
      {:call, "1.0.c5", "helper", %{"task" => "look"}, :none},
      {:call_started, "1.0.c6", "helper"},
      {:call, "1.0.c6", "helper", %{"task" => "fail"}, :none},
      {:call_started, "1.0.c7", "build"},
      {:call, "1.0.c7", "build", %{}, :none},
      {:waits, "1.0.c7"},
      {:sub_agent_started, "1.0.c5", "helper"},
      {:sub_agent_started, "1.0.c6", "helper"},
      {:sub_agent_ended, "1.0.c5", :ok},
      {:result, "1.0.c5", "It is there."},
      {:sub_agent_ended, "1.0.c6", :error},
      {:failed, "1.0.c6", "there is nothing"},
      {:state, %{"places" => ["here"]}},
      {:progress, "1.0.c0", 1, 3},
      {:result, "1.0.c0", %{"seen" => "here"}},
      {:failed, "1.0.c1", "there is nothing"},
      {:denied, "1.0.c2", "not that"},
      {:asked, "1.0.c3", "an approval", "clean_up", %{"path" => "/tmp"}},
      {:question, "1.0.c4", "a question", "ask_user", %{"question" => "Which seat?"}},
      {:arrived, "0.0.c0", "build", {:ok, "green"}},
      {:step_finished, {1, 0}},
      {:said, "2.said.0", "Shorter, please!"},
      {:step_started, {2, 0}},
      {:text_started, "2.0.0"},
      {:text, "2.0.0", "This is lost"},
      {:text_ended, "2.0.0"},
      {:dropped, {2, 0}, ["2.0.0"]},
      {:step_finished, {2, 0}},
      {:step_started, {2, 0}},
      {:retry, 1, 2_000, :rate_limited},
      {:waiting, 10_000},
      {:value, 1, %{"city" => "Prague"}},
      {:text_started, "2.0.0"},
      {:text, "2.0.0", "Kept"},
      {:text_ended, "2.0.0"},
      {:broken, {2, 0}},
      {:step_finished, {2, 0}},
      {:end, :answered}
    ]
  end

  @doc "The bytes of them, as a door sends them."
  def bytes(protocol, opts) do
    chunks =
      if shape = protocol.shape(),
        do: events() |> Enum.flat_map_reduce(shape, &protocol.chunks(&1, &2, opts)) |> elem(0),
        else: Enum.flat_map(events(), &protocol.chunks(&1, opts))

    chunks = Enum.with_index(protocol.begin(1, opts) ++ chunks)
    records = for {chunk, seq} <- chunks, do: protocol.record(chunk, seq, nil)
    IO.iodata_to_binary([records, protocol.last()])
  end
end
