alias AshAgent.Integration.{MemoryComment, MemoryTicket, TableComment, TableTicket}

# The same in memory and in PostgreSQL.
for {ticket, comment, moduletags, integrations} <- [
      {MemoryTicket, MemoryComment, [:ash], ["Ash"]},
      {TableTicket, TableComment, [:ash, :postgres],
       ["Ash", "AshPostgres", "Postgrex", "PostgreSQL"]}
    ],
    Code.ensure_loaded?(ticket) do
  defmodule Module.concat(
              AshAgent.Integration.ToolsTest,
              ticket |> Module.split() |> List.last()
            ) do
    use ExUnit.Case, async: false

    alias AshAgent.{Context, LLM, Runtime, Store, Tools}
    alias AshAgent.Integration.{Repo, Support}
    alias AshAgent.Runtime.ToolExecutor

    import AshAgent.TestSupport.Generators,
      only: [between: 2, chance: 1, check_all: 3, list_of: 2, one_of: 1]

    import ExUnit.CaptureLog

    for tag <- moduletags, do: @moduletag(tag)
    @moduletag :capture_log
    @moduletag integrations: integrations

    @ticket ticket
    @comment comment
    @ann %{name: "ann", role: :agent}
    @manager %{name: "ann", role: :manager}
    @bob %{name: "bob", role: :agent}
    @admin %{name: "root", role: :admin}

    if :postgres in moduletags do
      setup_all do
        Repo.query!("DROP TABLE IF EXISTS tickets, ticket_comments")
        for statement <- AshAgent.Integration.Tickets.tables(), do: Repo.query!(statement)
        :ok
      end

      setup do
        Repo.query!("TRUNCATE tickets, ticket_comments")
        :ok
      end
    else
      setup do
        for resource <- [@ticket, @comment], tenant <- ["acme", "other"] do
          opts = [tenant: tenant, authorize?: false, strategy: [:stream]]
          %{status: :success} = Ash.bulk_destroy!(resource, :destroy, %{}, opts)
        end

        :ok
      end
    end

    defp ticket(attributes \\ %{}, tenant \\ "acme") do
      attributes =
        Map.merge(
          %{
            subject: "Printer",
            owner: "ann",
            ssn: "SECRET-ssn",
            note: "SECRET-note",
            priority: 3,
            price: Decimal.new("12.50"),
            address: %{city: "Kiel", zip: "24103"},
            contact: "555"
          },
          attributes
        )

      Ash.Seed.seed!(@ticket, attributes, tenant: tenant)
    end

    defp tools(actions, opts \\ []), do: Tools.actions(@ticket, actions, opts)

    defp parameters(actions, opts \\ []) do
      [tool] = tools(actions, opts)
      tool.parameters
    end

    defp call(tools, name, arguments, context \\ %{}) do
      context = Map.merge(%{actor: @ann, tenant: "acme"}, context)
      calls = [%{id: "1", name: name, arguments: arguments}]
      [%{result: result}] = ToolExecutor.execute_tools(calls, tools, context)
      result
    end

    defp stored(ticket, tenant \\ "acme"),
      do: Ash.get!(@ticket, ticket.id, tenant: tenant, authorize?: false)

    describe "schemas" do
      test "have inputs with types, constraints, defaults and descriptions" do
        assert parameters([:open]) ==
                 Context.JSON.decode!(~S"""
                 {"type": "object", "additionalProperties": false, "required": ["subject"], "properties": {
                  "subject": {"type": "string", "description": "what it is about", "minLength": 1, "maxLength": 100},
                  "severity": {"type": "string", "enum": ["low", "high"], "description": "low: can wait; high: today"},
                  "priority": {"type": "integer", "minimum": 1, "maximum": 5},
                  "due": {"type": "string", "format": "date"},
                  "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
                  "address": {"type": "object", "additionalProperties": false, "required": ["city"],
                              "properties": {"city": {"type": "string"}, "zip": {"type": "string", "maxLength": 10}}},
                  "contact": {"anyOf": [
                    {"type": "object", "additionalProperties": false, "required": ["kind", "at"],
                     "properties": {"kind": {"type": "string", "enum": ["mail"]}, "at": {"type": "string"}}},
                    {"type": "string", "maxLength": 20}]},
                  "ssn": {"type": "string"},
                  "urgent": {"type": "boolean", "default": false, "description": "raises the priority"}}}
                 """)
      end

      test "of reads have what the developer allows" do
        assert parameters([:read]) ==
                 Context.JSON.decode!(~S"""
                 {"type": "object", "additionalProperties": false, "required": [], "properties": {
                  "limit": {"type": "integer", "minimum": 1, "maximum": 25, "default": 25},
                  "offset": {"type": "integer", "minimum": 0, "maximum": 100000}}}
                 """)

        %{"properties" => properties} =
          parameters(read: [filter: [:priority, :urgent?], sort: [:due], limit: 3])

        assert properties["limit"]["maximum"] == 3
        assert properties["sort"]["items"]["enum"] == ["-due", "due"]

        assert %{"anyOf" => [integer, operators]} = properties["filter"]["properties"]["priority"]

        assert integer == %{"type" => "integer", "minimum" => 1, "maximum" => 5}

        assert operators["properties"] |> Map.keys() ==
                 ~w(eq greater_than greater_than_or_equal in is_nil less_than less_than_or_equal not_eq)

        assert %{"anyOf" => [%{"type" => "boolean"}, _]} =
                 properties["filter"]["properties"]["urgent?"]
      end

      test "of updates have the key, and those of several records a list" do
        assert %{"required" => ["id"], "properties" => %{"id" => %{"format" => "uuid"}}} =
                 parameters([:change])

        assert %{
                 "required" => ["records"],
                 "properties" => %{
                   "records" => %{"maxItems" => 3, "items" => %{"required" => ["subject"]}}
                 }
               } = parameters(open: [bulk: 3])
      end

      test "neither the tenant nor private attributes are inputs" do
        for action <- [:open, :inspect_note] do
          names = Map.keys(parameters([action])["properties"])
          for private <- ~w(org note extra), do: refute(private in names)
        end
      end

      test "a domain's tools have names of their own, and repeat only reads" do
        tools =
          Tools.actions(Support, [
            {@ticket, [:read, :open, estimate: [repeat: :safe, timeout: 5_000]]},
            {@comment, [:read]}
          ])

        assert for(tool <- tools, do: tool.timeout) == [nil, nil, 5_000, nil]

        short = "#{Ash.Resource.Info.short_name(@comment)}_read"

        assert [
                 {"ticket_read", :safe},
                 {"ticket_open", :never},
                 {"ticket_estimate", :safe},
                 {^short, :safe}
               ] = for(tool <- tools, do: {tool.name, tool.repeat})

        assert [%{description: "Finds tickets by a word."}] = tools([:search])

        assert [%{name: "find", description: "Look"}] =
                 tools(search: [name: "find", description: "Look"])

        assert length(Tools.actions(@comment, :all)) == 3
      end
    end

    describe "what cannot be offered" do
      test "raises with words" do
        for {actions, words} <- [
              {[:fly], ~r/has no action :fly; there are: .*:open/},
              {[read: [filter: [:note]]],
               ~r/has no public attribute.* :note for the option :filter/},
              {[read: [sort: [:note]]], ~r/:note for the option :sort/},
              {[read: [fields: [:note]]], ~r/has no public attribute :note/},
              {[read: [load: [:hidden_comments]]],
               ~r/has no public relationship.* :hidden_comments/},
              {[read: [load: [comments: [:internal]]]], ~r/has no public .* :internal/},
              {[open: [filter: [:subject]]], ~r/has no use for the option :filter/},
              {[read: [bulk: 2]], ~r/has no use for the option :bulk/},
              {[:name], ~r/would make atoms/},
              {[:keep], ~r/no model can write :state/},
              {[read: [limit: 0]], ~r/invalid value for option :limit/},
              {["read"], ~r/expected each action to be a name/}
            ] do
          assert_raise ArgumentError, words, fn -> tools(actions) end
        end

        assert_raise ArgumentError, ~r/has no resource/, fn ->
          Tools.actions(Support, [{String, [:read]}])
        end

        assert_raise ArgumentError, ~r/expected an Ash resource/, fn ->
          Tools.actions(String, [:read])
        end
      end
    end

    describe "reads" do
      test "give public fields that the actor may see" do
        ticket = ticket()
        ticket(%{owner: "bob"})
        tools = tools([:read])

        record =
          Context.JSON.decode!(~S"""
          {"subject": "Printer", "status": "open", "severity": null, "priority": 3, "price": "12.50", "due": null,
           "tags": null, "address": {"city": "Kiel", "zip": "24103"}, "contact": "555", "owner": "ann", "extra": null,
           "org": "acme"}
          """)

        records = [Map.put(record, "id", ticket.id)]
        assert call(tools, "ticket_read", %{}) == {:ok, %{"records" => records}}

        assert call(tools, "ticket_read", %{}, %{actor: nil}) ==
                 {:error, "this is not allowed for the current user"}
      end

      test "load and select by choice" do
        ticket = ticket()

        for body <- ~w(a b c),
            do: Ash.Seed.seed!(@comment, %{body: body, ticket_id: ticket.id}, tenant: "acme")

        tools =
          tools([read: [fields: [:ssn], load: [:urgent?, :comment_count, :comments]]], limit: 2)

        assert {:ok, %{"records" => [hidden]}} = call(tools, "ticket_read", %{})
        refute Map.has_key?(hidden, "ssn")

        assert {:ok, %{"records" => [record]}} =
                 call(tools, "ticket_read", %{}, %{actor: @manager})

        assert Map.keys(record) == ~w(comment_count comments ssn urgent?)
        assert %{"ssn" => "SECRET-ssn", "urgent?" => false, "comment_count" => 3} = record
        assert [one, _two] = record["comments"]
        assert Map.keys(one) == ~w(body id ticket_id)
      end

      test "filter, sort and page" do
        for n <- 1..5, do: ticket(%{subject: "n#{n}", priority: n})

        filter = [:priority, :subject, :status, :due, :urgent?]
        read = [filter: filter, sort: [:priority, :subject], fields: [:subject]]
        tools = tools([read: read], limit: 2)

        read = fn arguments ->
          case call(tools, "ticket_read", arguments) do
            {:ok, %{"records" => records} = shown} ->
              {Enum.map(records, & &1["subject"]), shown["more"] || false}

            {:error, words} ->
              words
          end
        end

        assert read.(%{"sort" => ["-priority"]}) == {["n5", "n4"], true}
        assert read.(%{"sort" => ["priority"], "offset" => 4}) == {["n5"], false}
        assert read.(%{"sort" => "priority", "limit" => 1}) == {["n1"], true}
        assert read.(%{"limit" => 1_000, "sort" => ["priority"]}) == {["n1", "n2"], true}

        for {filter, found} <- [
              {%{"priority" => 3}, ["n3"]},
              {%{"priority" => %{"greater_than" => 4}}, ["n5"]},
              {%{"priority" => %{"in" => [1, 2]}}, ["n1", "n2"]},
              {%{"subject" => %{"contains" => "4"}, "priority" => %{"not_eq" => 5}}, ["n4"]},
              {%{"status" => "closed"}, []},
              {%{"due" => %{"is_nil" => false}}, []},
              {%{"due" => nil, "urgent?" => true}, ["n4", "n5"]}
            ],
            do: assert(read.(%{"filter" => filter, "sort" => ["priority"]}) == {found, false})

        for {filter, words} <- [
              {%{"owner" => "bob"},
               "filter has an unknown field; known are: due, priority, status, subject, urgent?"},
              {%{"priority" => %{"like" => 1}}, "unknown operator; known are: eq, not_eq, in"},
              {%{"priority" => "many"}, "filter.priority.eq has a value that is invalid"},
              {[], "filter must be an object"}
            ],
            do: assert(read.(%{"filter" => filter}) =~ words)

        assert read.(%{"sort" => ["owner"]}) =~ "sort must be a list of: -priority"
        assert read.(%{"limit" => 0}) == "limit must be an integer of at least 1"
      end

      test "pass a field policy also in filters" do
        ticket()
        tools = tools(read: [filter: [:ssn]])
        filter = %{"filter" => %{"ssn" => "SECRET-ssn"}}
        assert {:ok, %{"records" => []}} = call(tools, "ticket_read", filter)

        assert {:ok, %{"records" => [_]}} = call(tools, "ticket_read", filter, %{actor: @manager})
      end

      test "with arguments, for a single record, and in pages" do
        ticket = ticket(%{subject: "Scanner"})
        other = ticket(%{owner: "bob"})
        ticket()
        ticket()
        tools = tools([:search, :one, :pages])

        assert {:ok, %{"records" => [%{"subject" => "Scanner"}]}} =
                 call(tools, "ticket_search", %{"word" => "Scan"})

        assert {:error, ~s(the required argument "word" is missing)} =
                 call(tools, "ticket_search", %{})

        assert {:error, "unknown arguments: \"w\"; known are: " <> _} =
                 call(tools, "ticket_search", %{"word" => "a", "w" => 1})

        assert {:ok, %{"subject" => "Scanner"}} = call(tools, "ticket_one", %{"id" => ticket.id})

        absent = {:error, "there is no such ticket, or it may not be seen"}
        assert call(tools, "ticket_one", %{"id" => other.id}) == absent
        assert call(tools, "ticket_one", %{"id" => Ash.UUID.generate()}) == absent
        assert {:error, "id: is invalid"} = call(tools, "ticket_one", %{"id" => "7"})

        assert {:ok, %{"records" => [_, _], "more" => true}} = call(tools, "ticket_pages", %{})
        assert {:ok, %{"records" => [_] = last}} = call(tools, "ticket_pages", %{"offset" => 2})
        refute last == []
      end

      test "of another tenant, or of none, find nothing" do
        ticket = ticket(%{}, "other")
        tools = tools([:read, :one, :change])

        assert {:ok, %{"records" => []}} = call(tools, "ticket_read", %{})

        assert {:error, "there is no such" <> _} = call(tools, "ticket_one", %{"id" => ticket.id})

        assert {:error, "there is no ticket" <> _} =
                 call(tools, "ticket_change", %{"id" => ticket.id, "subject" => "x"})

        for context <- [%{tenant: nil}, %{tenant: nil, actor: @admin}],
            do:
              assert(
                {:error, "this needs a tenant" <> _} = call(tools, "ticket_read", %{}, context)
              )

        assert stored(ticket, "other").subject == "Printer"
      end
    end

    describe "changes" do
      test "create, update and destroy with the actor and the tenant of the run" do
        tools = tools([:open, :change, :destroy])

        mail = %{"kind" => "mail", "at" => "a@b.c"}
        fire = %{"subject" => "Fire", "urgent" => true, "address" => %{"city" => "Bonn"}}
        assert {:ok, opened} = call(tools, "ticket_open", Map.put(fire, "contact", mail))
        assert %{"id" => id, "owner" => "ann", "org" => "acme", "contact" => ^mail} = opened
        assert opened["priority"] == 5

        assert {:ok, %{"status" => "closed"}} =
                 call(tools, "ticket_change", %{"id" => id, "status" => "closed"})

        absent = {:error, "there is no ticket with this key for which destroy is possible"}
        assert call(tools, "ticket_destroy", %{"id" => id}) == absent
        assert call(tools, "ticket_destroy", %{"id" => id}, %{actor: @admin}) == {:ok, "done"}
        assert call(tools, "ticket_destroy", %{"id" => id}, %{actor: @admin}) == absent
      end

      test "the load of a change is not its outcome" do
        tools = tools(open: [load: [:urgent?], fields: [:id]])

        assert {:ok, %{"urgent?" => true}} =
                 call(tools, "ticket_open", %{"subject" => "a", "urgent" => true})
      end

      test "nobody is asked about arguments that the action cannot take" do
        me = self()
        approval = fn _call, _context -> send(me, :asked) && {:deny, "no"} end

        for {arguments, words} <- [
              {%{"subject" => "a", "due" => "soon"}, "due: is invalid"},
              {%{"subject" => "a", "org" => "other"}, "unknown arguments"},
              {%{"subject" => "a", "priority" => "2"}, nil}
            ] do
          call = %{id: "a", name: "ticket_open", arguments: arguments}
          llm = AshAgent.LLM.Scripted.new([%{tool_calls: [call]}, "Done."])
          opts = [llm: llm, tools: tools([:open]), approval: approval]
          {:ok, %{context: context}} = AshAgent.Runtime.run(Context.new("Hi"), opts)
          [%{result: {:error, said}}] = Context.get_iteration(context, 1).tool_calls

          if words do
            assert said =~ words
            refute_received :asked
          else
            assert_received :asked
          end
        end
      end

      test "errors say what to change" do
        ticket = ticket()
        tools = tools([:open, :change])

        for {arguments, words} <- [
              {%{"subject" => "", "priority" => 9},
               ["subject is required", "priority: must be less than or equal to 5"]},
              {%{"subject" => "a", "severity" => "huge"}, ["severity: is invalid"]},
              {%{"subject" => "a", "due" => "soon"}, ["due: is invalid"]},
              {%{"subject" => "a", "tags" => ~w(a b c d)}, ["tags: must have 3 or fewer items"]},
              {%{"subject" => "a", "address" => %{}}, ["address.city is required"]},
              {%{"subject" => "a", "org" => "other"}, [~s(unknown arguments: "org"; known are: )]}
            ] do
          assert {:error, said} = call(tools, "ticket_open", arguments)
          for word <- words, do: assert(said =~ word)
        end

        closed = %{"id" => ticket.id, "status" => "closed", "due" => "2026-01-01"}

        assert call(tools, "ticket_change", closed) ==
                 {:error, "due: a closed ticket is not due"}

        assert stored(ticket).status == :open

        assert {:error, "id is missing or invalid"} = call(tools, "ticket_change", %{"id" => %{}})

        assert {:error, "price is not a number of a usual size"} =
                 call(tools, "ticket_change", %{"id" => ticket.id, "price" => "1e99999999"})
      end

      test "what may not be changed looks as if it did not exist" do
        hidden = ticket(%{owner: "bob"})
        seen = ticket(%{owner: "bob", subject: "public"})
        tools = tools([:change, :destroy])

        for name <- ["ticket_change", "ticket_destroy"] do
          answers =
            for id <- [hidden.id, seen.id, Ash.UUID.generate()],
                do: call(tools, name, %{"id" => id})

          assert [{:error, "there is no ticket with this key" <> _}] = Enum.uniq(answers)
        end

        assert {:ok, _} = call(tools, "ticket_change", %{"id" => hidden.id}, %{actor: @bob})
      end

      test "a create that is forbidden says only that" do
        assert call(tools([:open]), "ticket_open", %{"subject" => "a"}, %{actor: nil}) ==
                 {:error, "this is not allowed for the current user"}
      end

      test "a private attribute is not named in errors" do
        ticket = ticket(%{note: "abc"})

        assert {:error, words} =
                 call(tools([:inspect_note]), "ticket_inspect_note", %{"id" => ticket.id})

        refute words =~ "note"
        refute words =~ "abc"
      end

      test "several records have a result each, up to the limit" do
        mine = ticket()
        other = ticket(%{owner: "bob"})
        tools = tools(change: [bulk: 2, fields: [:priority]], open: [bulk: 2])

        records = for ticket <- [mine, other], do: %{"id" => ticket.id, "priority" => 1}
        words = "there is no ticket with this key for which change is possible"

        assert call(tools, "ticket_change", %{"records" => records}) ==
                 {:ok, %{"results" => [%{"ok" => %{"priority" => 1}}, %{"error" => words}]}}

        assert stored(other).priority == 3
        three = List.duplicate(%{"subject" => "a"}, 3)

        assert {:error, "records may have at most 2 elements" <> _} =
                 call(tools, "ticket_open", %{"records" => three})

        assert {:error, "records[1]: unknown arguments: \"x\"" <> _} =
                 call(tools, "ticket_open", %{"records" => [%{"subject" => "a"}, %{"x" => 1}]})

        for wrong <- [%{"records" => []}, %{"records" => %{}}, %{"records" => [1]}],
            do: assert({:error, _} = call(tools, "ticket_open", wrong))

        assert Ash.count!(@ticket, tenant: "acme", authorize?: false) == 2
      end
    end

    describe "generic actions" do
      test "return what their type shows, and get the key of the call" do
        {:ok, store} = Store.SQLite.open(":memory:")
        {:ok, kept} = Store.create(store, Context.new("Estimate"), owner: "a")

        call = %{id: "1", name: "ticket_estimate", arguments: %{"hours" => 3}}
        llm = LLM.Scripted.new([%{tool_calls: [call]}, "Six."])
        opts = [store: store, kept: kept, runtime_context: %{actor: @ann, tenant: "acme"}]
        {:ok, result} = Runtime.run(kept.value, [llm: llm, tools: tools([:estimate])] ++ opts)

        assert [%{result: {:ok, %{"hours" => 6, "actor" => "ann", "key" => key} = shown}}] =
                 Context.get_iteration(result.context, 1).tool_calls

        assert is_binary(key) and map_size(shown) == 3
      end

      test "fail without showing why, in words or in the log" do
        log =
          capture_log(fn ->
            for name <- ["ticket_crash", "ticket_guess"] do
              assert {:error, "the action failed because of an internal error" <> _ = words} =
                       call(tools([:crash, :guess]), name, %{})

              refute words =~ "SECRET"
            end
          end)

        assert log =~ "the tool of #{inspect(@ticket)}.crash failed"
        refute log =~ "SECRET"
      end
    end

    ## Wrong arguments, as models write them

    @actions ~w(read search one pages open change destroy inspect_note estimate crash guess)a
    @names ~w(id subject status priority price due tags address contact org note owner ssn extra urgent word hours filter sort
      limit offset records internal door_code hidden_comments comments __struct__)

    # What a model has not seen before, and which is no atom.
    defp word, do: "w#{between(0, 1_000_000_000_000)}x#{System.unique_integer([:positive])}"

    defp json(depth) do
      case between(0, if(depth == 0, do: 12, else: 15)) do
        0 ->
          nil

        1 ->
          chance(50)

        2 ->
          between(-10, 10)

        3 ->
          one_of([1.0e300, -0.5, 9_223_372_036_854_775_808, Integer.pow(10, 60)])

        4 ->
          one_of(["", "open", "closed", "low", "mail", "public", "acme", "other", "SECRET"])

        5 ->
          one_of(["2026-01-01", "2026-13-45", "1e5", "-1e-7", "NaN", "Infinity", "1e999999999"])

        6 ->
          one_of(["a\0b", <<255>>, "é\u{202E}", "%{count}", "Elixir.String", "-priority", "*"])

        7 ->
          Ash.UUID.generate()

        8 ->
          one_of(["' OR 1=1 --", "{{note}}", "org", "note", "comments.internal"])

        9 ->
          :rand.uniform()

        13 ->
          list_of(4, fn -> json(depth - 1) end)

        n when n > 13 ->
          Map.new(list_of(4, fn -> {name(), json(depth - 1)} end))

        _ ->
          word()
      end
    end

    defp name do
      case between(0, 9) do
        0 -> word()
        1 -> one_of(~w(eq not_eq in greater_than is_nil contains and or not kind at city zip))
        _ -> one_of(@names)
      end
    end

    # Most of it fits the schema, or nothing would ever get as far as the action.
    defp arguments(schema, ids) do
      given =
        for {name, schema} <- schema["properties"],
            chance(40),
            into: %{},
            do: {name, value(schema, ids)}

      given =
        for name <- schema["required"],
            chance(90),
            into: given,
            do: {name, value(schema["properties"][name], ids)}

      if chance(10), do: Map.put(given, name(), json(2)), else: given
    end

    defp value(schema, ids), do: if(chance(85), do: fitting(schema, ids), else: json(3))

    defp fitting(%{"enum" => values}, _ids), do: one_of(values)
    defp fitting(%{"anyOf" => schemas}, ids), do: value(one_of(schemas), ids)
    defp fitting(%{"format" => "uuid"}, ids), do: one_of(ids)
    defp fitting(%{"format" => "date"}, _ids), do: "2026-01-01"
    defp fitting(%{"type" => "boolean"}, _ids), do: chance(50)
    defp fitting(%{"type" => "integer"}, _ids), do: between(1, 5)
    defp fitting(%{"type" => "number"}, _ids), do: one_of(["12.50", 3, 0.1])
    defp fitting(%{"type" => "string"}, _ids), do: one_of([word(), "public", "a"])

    defp fitting(%{"type" => "array", "items" => items}, ids),
      do: list_of(3, fn -> value(items, ids) end)

    defp fitting(%{"type" => "object"} = schema, ids), do: arguments(schema, ids)

    defp words_of(value) when is_map(value),
      do: Enum.flat_map(value, fn {k, v} -> [k | words_of(v)] end)

    defp words_of(value) when is_list(value), do: Enum.flat_map(value, &words_of/1)
    defp words_of(value) when is_binary(value), do: [value]
    defp words_of(_value), do: []

    defp atom?(text) do
      String.to_existing_atom(text)
      true
    rescue
      ArgumentError -> false
    end

    test "whatever a model writes: no atom, no crash, nothing private, nothing of other tenants" do
      filter = [:status, :priority, :subject, :due, :price, :severity, :urgent?, :comment_count]
      read = [filter: filter, sort: filter, load: [:urgent?, :comment_count, :comments]]
      plain = @actions -- [:read, :pages]

      offered =
        tools([read: read, pages: read] ++ plain) ++
          tools(open: [bulk: 3, name: "many"], change: [bulk: 3, name: "changes"])

      foreign = ticket(%{subject: "OTHER-subject", note: "OTHER-note"}, "other")
      before = stored(foreign, "other")
      untold = ticket(%{owner: "bob", subject: "HIDDEN-subject"})

      check_all("wrong arguments of actions", [runs: 400], fn _size ->
        mine = ticket()
        Ash.Seed.seed!(@comment, %{body: "b", ticket_id: mine.id}, tenant: "acme")
        tool = one_of(offered)
        arguments = arguments(tool.parameters, [mine.id, foreign.id, untold.id])

        assert {status, shown} = call(offered, tool.name, arguments)
        assert status in [:ok, :error]

        # The words are the model's where they are not a record's.
        text =
          if status == :ok,
            do: inspect(shown, limit: :infinity, printable_limit: :infinity),
            else: shown

        given = Enum.join(words_of(arguments), " ")

        for secret <- ~w(SECRET- OTHER- HIDDEN- door_code),
            not String.contains?(given, secret),
            do: refute(text =~ secret)

        for word <- words_of(arguments), word =~ ~r/^w\d+x\d+$/, do: refute(atom?(word))

        # What it says can be kept with the call.
        assert %Context{} =
                 Context.new("x")
                 |> Context.add_assistant_message(nil, [
                   %{id: "1", name: tool.name, arguments: arguments}
                 ])
                 |> Context.add_tool_results([{"1", {status, shown}}])

        assert stored(foreign, "other") == before
        assert %{subject: "HIDDEN-subject", note: "SECRET-note"} = stored(untold)
      end)

      assert Ash.count!(@ticket, tenant: "other", authorize?: false) == 1
    end
  end
end
