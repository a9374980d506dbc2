defmodule AshAgent.Integration.Assistants do
  @moduledoc false
  # Agents as resources, written as those who come from ash_agent have them.
  use Ash.Domain, validate_config_inclusion?: false

  resources do
    allow_unregistered?(true)
  end
end

defmodule AshAgent.Integration.Assistant do
  @moduledoc false

  defmacro __using__(opts) do
    # Spark reads the list, not what it comes to.
    opts = [domain: AshAgent.Integration.Assistants, extensions: [AshAgent.Resource]] ++ opts

    quote do
      use Ash.Resource, unquote(opts)

      resource do
        require_primary_key?(false)
      end
    end
  end
end

defmodule AshAgent.Integration.Reply do
  @moduledoc false
  use Ash.TypedStruct

  typed_struct do
    field(:content, :string, allow_nil?: false)
    field(:score, :integer, constraints: [min: 1, max: 10])
    field(:mood, :atom, constraints: [one_of: [:glad, :sad]])
    field(:tags, {:array, :string}, default: [])
  end
end

defmodule AshAgent.Integration.Report do
  @moduledoc false
  use Ash.TypedStruct

  typed_struct do
    field(:title, :string, allow_nil?: false)
    field(:lead, AshAgent.Integration.Reply)
    field(:replies, {:array, AshAgent.Integration.Reply})
    field(:grid, {:array, {:array, :integer}})
  end
end

defmodule AshAgent.Integration.Watcher do
  @moduledoc false
  @behaviour AshAgent.Runtime.Hooks

  @impl true
  def before_call(%{input: %{message: "no " <> _}}), do: {:error, "not that"}

  def before_call(call) do
    tell({:before_call, call.input})
    {:ok, call}
  end

  @impl true
  def after_render(call) do
    tell({:after_render, call.rendered_prompt})
    {:ok, update_in(call.rendered_prompt, &(&1 <> " Be brief."))}
  end

  @impl true
  def after_call(%{response: %{output: "secret"}}),
    do: {:error, RuntimeError.exception("hidden")}

  def after_call(%{response: %{output: "crash"}}), do: raise("PRIVATE-hook")

  def after_call(call) do
    tell({:after_call, call.response.output})
    {:ok, update_in(call.response.output, &String.upcase/1)}
  end

  @impl true
  def on_error(call) do
    tell({:on_error, call.error})
    {:ok, call}
  end

  # Hooks of a stream run in its process, which has the reader among its callers.
  defp tell(message) do
    for pid <- [self() | Process.get(:"$callers", [])], do: send(pid, message)
  end
end

defmodule AshAgent.Integration.Helper do
  @moduledoc false
  # Text in and out, and tools of every kind.
  use AshAgent.Integration.Assistant

  agent do
    client("anthropic:claude-sonnet-4-5", temperature: 0.5, max_tokens: 50)

    input do
      argument(:message, :string, allow_nil?: false)
      argument(:tone, :string, default: "plain")
    end

    prompt(~p"Answer in a {{ tone }} tone.")

    tools do
      max_iterations(5)
      timeout(120_000)

      tool :greet do
        description("Greets somebody")
        function({__MODULE__, :greet, ["!"]})
        parameters(name: [type: :string, required: true, description: "Who it is"])
      end

      tool :double do
        description("Doubles a number")
        function(fn %{number: number} -> %{result: number * 2} end)
        parameters(number: [type: :integer, required: true])
      end

      tool :whoami do
        description("Tells who calls")

        function(fn _arguments, context ->
          {:ok, AshAgent.Integration.Helper.caller(context)}
        end)
      end

      tool :broken do
        description("Fails in a way")

        function(fn %{how: how}, _context ->
          AshAgent.Integration.Helper.fail(how)
        end)

        parameters(
          how: [type: :atom, constraints: [one_of: [:raise, :exit, :throw, :error, :kill]]]
        )
      end

      tool :wait do
        description("Waits for the test")
        function({__MODULE__, :wait, []})
        parameters(number: [type: :integer])
      end

      tool :stop do
        description("Ends the call")
        function(fn _arguments -> {:halt, "stopped"} end)
      end

      tool :ask do
        description("Asks another agent")
        parameters(question: [type: :string, required: true])

        function(fn %{question: question}, %{actor: actor} ->
          opts = [actor: actor, context: actor.inner]

          with {:ok, result} <- AshAgent.Integration.Typist.run(question, opts),
               do: {:ok, result.output}
        end)
      end

      tool :look_up do
        description("Looks tickets up")
        action({AshAgent.Integration.MemoryTicket, :read, filter: [:status]})
      end

      tool :open_ticket do
        description("Opens a ticket")
        action({AshAgent.Integration.MemoryTicket, :open})
      end
    end
  end

  code_interface do
    define(:run, args: [:message])
    define(:stream, args: [:message])
    define(:resume, args: [:context])
  end

  def greet(%{name: name}, mark, _context), do: {:ok, %{greeting: "Hello, #{name}#{mark}"}}

  def caller(context),
    do: Map.take(context, [:actor, :tenant, :agent, :domain, :authorize?])

  def fail(:raise), do: raise("it is broken")
  def fail(:exit), do: exit(:broken)
  def fail(:throw), do: throw(:broken)
  def fail(:error), do: {:error, "it did not work"}
  def fail(:kill), do: Process.exit(self(), :kill)

  # Tells the test, which is the actor, and waits for its word.
  def wait(arguments, %{actor: test}) do
    send(test, {:waits, self(), arguments[:number]})
    receive do: (:go_on -> {:ok, arguments[:number]})
  end
end

defmodule AshAgent.Integration.Typist do
  @moduledoc false
  # A typed answer, a budget that ends calls, and errors that do.
  use AshAgent.Integration.Assistant

  import AshAgent.Sigils, only: [sigil_p: 2]

  agent do
    client(AshAgent.LLM.Ollama)
    output(AshAgent.Integration.Reply)
    token_budget(1_000)
    budget_strategy(:halt)

    input do
      argument(:message, :string)
      argument(:data, :map)
    end

    prompt(~p"""
    Say something.
    {{ output_format }}
    """)
  end

  tools do
    on_error(:halt)

    tool :roll do
      description("Rolls dice")
      function(fn _arguments -> {:ok, 6} end)
    end

    tool :fail do
      description("Does not work")
      function(fn _arguments -> {:error, "it did not work"} end)
    end

    tool :give_up do
      description("Ends the call")
      function(fn _arguments -> {:halt, %{"gave" => "up"}} end)
    end
  end

  code_interface do
    define(:run, args: [{:optional, :message}])
    define(:stream, args: [:message])
  end
end

defmodule AshAgent.Integration.Guarded do
  @moduledoc false
  # Policies, hooks, approval and a budget that only warns.
  use AshAgent.Integration.Assistant, authorizers: [Ash.Policy.Authorizer]

  agent do
    client(&AshAgent.Integration.Guarded.model/0)
    hooks(AshAgent.Integration.Watcher)
    prompt(&AshAgent.Integration.Guarded.prompt/1)
    token_budget(100)
    options(approval: &AshAgent.Integration.Guarded.approve/2, max_concurrency: 1)

    input do
      argument(:message, :string, allow_nil?: false)
    end
  end

  tools do
    tool :delete do
      description("Deletes a file")
      function(fn %{path: path} -> {:ok, "deleted " <> path} end)
      parameters(path: [type: :string, required: true])
    end
  end

  policies do
    policy action([:call, :run, :stream]) do
      authorize_if(actor_present())
    end

    policy action(:resume) do
      authorize_if(actor_attribute_equals(:role, :manager))
    end
  end

  code_interface do
    define(:run, args: [:message])
    define(:stream, args: [:message])
    define(:resume, args: [:context])
  end

  def model, do: AshAgent.LLM.Scripted.new(["Hello"])
  def prompt(%{message: message}), do: "They said #{byte_size(message)} bytes."
  def approve(_call, _context), do: :ask
end

defmodule AshAgent.Integration.Toolless do
  @moduledoc false
  # As little as an agent can have.
  use AshAgent.Integration.Assistant

  agent do
    client(AshAgent.LLM.Ollama)

    input do
      argument(:message, :string)
    end
  end
end

# Hooks that do not exist, and hooks that do not return what they have to.
for {name, module} <- [Unguarded: :Missing, Careless: :Forgetful] do
  defmodule Module.concat(AshAgent.Integration, name) do
    @moduledoc false
    use AshAgent.Integration.Assistant

    agent do
      client(AshAgent.LLM.Ollama)
      hooks(Module.concat(AshAgent.Integration, module))

      input do
        argument(:message, :string)
      end
    end
  end
end

defmodule AshAgent.Integration.Forgetful do
  @moduledoc false
  def before_call(call), do: call
end
