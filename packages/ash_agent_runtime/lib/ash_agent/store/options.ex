defmodule AshAgent.Store.Options do
  @moduledoc false

  # The options and other arguments of the functions of AshAgent.Store. A schema is named after its function.

  alias AshAgent.Options
  alias AshAgent.Store.Conversation

  @call_states [
                 :started,
                 :waiting,
                 :ok,
                 :error,
                 :halt,
                 :unknown,
                 :denied,
                 :cancelled,
                 :interrupted
               ] ++
                 [:arrived, :rewound]

  # PostgreSQL cannot index longer ones.
  @longest_id 512

  @doc false
  def id?(id),
    do:
      is_binary(id) and byte_size(id) in 1..@longest_id and String.valid?(id) and
        :binary.match(id, <<0>>) == :nomatch

  @id [type: {:custom, &__MODULE__.id?/1}, type_doc: "an id"]
  @owner Keyword.put(@id, :type_doc, "a non-empty string of at most #{@longest_id} bytes")
  @ids [type: {:list, {:custom, &__MODULE__.id?/1}}, type_doc: "a list of ids"]
  @keys Keyword.put(@ids, :type_doc, "a list of keys")
  @owns {:owner, [required: true] ++ @owner,
         "the owner who claims it, such as the name of a node."}
  @status {:status, {:in, Conversation.statuses()}, "the status of the conversation."}
  @statuses {:or, [{:in, Conversation.statuses()}, {:list, {:in, Conversation.statuses()}}]}
  @lease {:lease, :pos_integer, [default: 30_000],
          "milliseconds until the claim ends, unless a write or `renew/2` extends it."}
  @note {:note, :map, [default: %{}],
         "a map that `history/3` returns, for instance when a model was asked and at what cost."}
  @count [type: {:custom, &__MODULE__.limit?/1}, type_doc: "an integer from 1 to 10,000"]
  @limit {:limit, @count ++ [default: 100], "how many to return at most."}

  @doc false
  def limit?(limit), do: is_integer(limit) and limit in 1..10_000

  @create Options.schema([
            {:owner, @owner, "claims it at once for this owner. By default, it is not claimed."},
            @lease,
            {:status, {:in, Conversation.statuses()}, [default: :idle],
             "the status of the conversation."},
            @note
          ])

  @append Options.schema([
            @status,
            {:finished, {:list, {:custom, &__MODULE__.finished?/1}},
             [default: [], type_doc: "a list of attempts with a `:state`"],
             "calls that have ended: attempts as in `start/3`, with a `:state`, see `t:call_state/0`. The first state recorded for an attempt is final."},
            {:taken, @ids ++ [default: []],
             "the ids of the waiting messages that this write adds to the conversation."},
            {:arrived, @keys ++ [default: []],
             "the keys of late results that this write takes: into the conversation, or because it does not take them. Those of calls that " <>
               "have their result in it now are found without being named."},
            {:waiting, {:list, {:custom, &__MODULE__.wait?/1}},
             [
               default: [],
               type_doc: "a list of maps with `:key`, `:call` and perhaps `:deadline`"
             ],
             "what waits for its deadline alone, such as a tool that waits for others: `AshAgent.Store.waiting_calls/2` does not list it, and it ends with " <>
               "`:arrived`. Calls that wait in the conversation are found without being named."},
            {:cancelled, @keys ++ [default: []],
             "the keys of calls that waited and are called off."},
            @note
          ])

  @claim Options.schema([
           @owns,
           @lease,
           @status,
           {:reclaim, :boolean, [default: false],
            "also takes a conversation that this owner already holds. Use it if you know that the process that held it is gone."},
           {:from, @owner,
            "also takes a conversation that this other owner holds: one that is gone, or that hands it over. By default, from nobody."},
           {:load, :boolean, [default: true],
            "whether the conversation is loaded. If not, its `value` is `nil`, as in those of `expired/2`: pass it to `fetch/2`."}
         ])

  @release Options.schema([@status])

  @expired Options.schema([
             @owns,
             @lease,
             @limit,
             {:status, @statuses, [default: :running], "the status, or a list of them."}
           ])

  @list Options.schema([
          {:status, @statuses, "the status, or a list of them. Defaults to all."},
          {:metadata, {:custom, &__MODULE__.plain?/1},
           [type_doc: "a map with strings, atoms, integers, booleans or `nil` as values"],
           "entries that the metadata must contain. Defaults to no entries."},
          {:parent_id, @id,
           "lists only children or forks of this conversation. Defaults to all."},
          {:by, {:in, [:updated_at, :created_at]}, [default: :updated_at],
           "the time to order by, which `:since` and `:until` refer to."},
          {:order, {:in, [:desc, :asc]}, [default: :desc], "newest or oldest first."},
          {:since, {:struct, DateTime}, "from this time on."},
          {:until, {:struct, DateTime}, "before this time."},
          {:after, {:custom, &__MODULE__.cursor?/1}, [type_doc: "`next` of the previous page"],
           "continues there. Defaults to the first page."},
          @limit
        ])

  @batch Options.schema([
           {:batch, @count ++ [default: 100],
            "how many conversations to delete in a transaction."},
           {:on_batch, {:fun, 1},
            "called after each transaction with the receipt of what it deleted."}
         ])

  @erase Options.schema([
           {:ids, @ids,
            "these conversations. Their forks and children go even if they themselves are gone."}
         ]) ++
           Keyword.take(@list, [:metadata, :status, :parent_id]) ++
           [
             since: Keyword.put(@list[:since], :doc, "created from this time on."),
             until: Keyword.put(@list[:until], :doc, "created before this time.")
           ] ++ @batch

  @prune Options.schema([
           {:older_than, :non_neg_integer, [required: true],
            "seconds, by the store's clock. Conversations that were written or sent a message since then stay."},
           {:status, Keyword.put(@list[:status], :default, :idle)}
         ]) ++ Keyword.take(@list, [:metadata, :parent_id]) ++ @batch

  @search Options.schema([
            {:id, @id, "only this conversation. Defaults to all."}
          ]) ++
            Keyword.take(@list, [:metadata, :status, :parent_id]) ++
            Options.schema([
              {:after, {:custom, &__MODULE__.place?/1}, [type_doc: "`next` of the previous page"],
               "continues there. Defaults to the first page."},
              {:limit, @count ++ [default: 20], "how many to return at most."}
            ])

  @dump Options.schema([
          {:inline, :boolean, [default: false],
           "whether media are in the document, instead of references to them."}
        ])

  @history Options.schema([
             {:after, :non_neg_integer, [default: 0],
              "the revision after which the page begins."},
             @limit
           ])

  @calls Options.schema([
           {:state, {:or, [{:in, @call_states}, {:list, {:in, @call_states}}]},
            "the state, or a list of them; `:started` calls have no outcome. Defaults to all."},
           {:keys, {:list, {:custom, &__MODULE__.id?/1}}, [type_doc: "a list of keys"],
            "the keys of calls. Defaults to all."}
         ])

  @enqueue Options.schema([
             {:id, @id,
              "the id of the message: enqueued again with the same id, it is stored once. Defaults to a new id."},
             {:kind, {:in, [:prompt, :steer]}, [default: :prompt],
              "whether it starts a turn of its own, or is for the running one."},
             {:metadata, :map, [default: %{}], "kept with it."}
           ])

  @arrive Options.schema([
            {:from, :any, "from whom the result is."},
            {:at, {:struct, DateTime}, "when it came. Defaults to when it is stored."},
            {:until, {:struct, DateTime},
             "after this time nothing is stored: a result that was stored before is told as ever, and any other is `:late`."}
          ])

  @waiting_calls Options.schema([
                   {:for, :any,
                    "only calls that wait for this: a person, a tag. Defaults to all."},
                   {:id, @id, "only of this conversation. Defaults to all."},
                   {:deadline_before, {:struct, DateTime},
                    "only those with a deadline before this time."},
                   {:after, {:custom, &__MODULE__.call_cursor?/1},
                    [type_doc: "`next` of the previous page"],
                    "continues there. Defaults to the first page."},
                   @limit
                 ])

  @arrived Keyword.take(@waiting_calls, [:after, :limit])
  @expire_waiting Options.schema([@limit])

  @call_key [branch: [type: :string, default: "main"]]
  @schemas [create: @create, append: @append, claim: @claim, release: @release] ++
             [expired: @expired, list: @list, erase: @erase, prune: @prune, search: @search] ++
             [
               dump: @dump,
               history: @history,
               calls: @calls,
               enqueue: @enqueue,
               arrive: @arrive,
               waiting_calls: @waiting_calls,
               expire_waiting: @expire_waiting,
               arrived: @arrived,
               call_key: @call_key
             ]

  @doc "Checks the options of a function, and completes them."
  def validate!(opts, name), do: Options.validate!(opts, @schemas[name])

  @doc "Documents the options of a function."
  def docs(name), do: Options.docs(@schemas[name])

  @doc "The states of a call."
  def call_states, do: @call_states

  # Options are checked and have their defaults; ids are strings that any database accepts.

  @doc "The bytes of the longest id."
  def longest_id, do: @longest_id

  @doc "Returns `:ok` for an id that any database accepts, and raises `ArgumentError` for others."
  def check_id!(id) do
    words =
      "expected the conversation's id to be valid UTF-8 of at most #{@longest_id} bytes without NUL, got #{byte_size(id)} bytes; " <>
        "store a fork/2 of it with another id"

    if id?(id), do: :ok, else: raise(ArgumentError, words)
  end

  @doc false
  def finished?(call),
    do: attempt?(call) and call[:state] in (@call_states -- [:started, :waiting])

  @doc false
  def plain?(map) do
    plain? = &(is_atom(&1) or (is_binary(&1) and String.valid?(&1)))
    number? = &(is_integer(&1) and abs(&1) < 0x7FFFFFFFFFFFFFFF)

    is_map(map) and not is_struct(map) and
      Enum.all?(map, fn {key, value} -> plain?.(key) and (plain?.(value) or number?.(value)) end)
  end

  @doc false
  def place?({%DateTime{}, id, branch, number}),
    do: id?(id) and is_integer(branch) and is_integer(number)

  def place?(_other), do: false

  @doc false
  def cursor?({%DateTime{}, id}), do: id?(id)
  def cursor?(_other), do: false

  @doc false
  def call_cursor?({%DateTime{}, id, key}), do: id?(id) and id?(key)
  def call_cursor?(_other), do: false

  @doc false
  def wait?(%{key: key, call: %{}} = wait),
    do: id?(key) and (wait[:deadline] == nil or is_struct(wait.deadline, DateTime))

  def wait?(_other), do: false

  def attempt?(%{key: key} = call) do
    attempt = Map.get(call, :attempt, 1)

    id?(key) and is_integer(attempt) and attempt in 1..1_000_000 and
      is_map(Map.get(call, :call, %{}))
  end

  def attempt?(_other), do: false
end
