defmodule AshAgent.Door.Source do
  @moduledoc false

  # Where the conversations of a door are, and what it asks of them. An identity is what the application's function has returned. Whatever goes
  # wrong is one of the door's kinds.

  alias AshAgent.Context

  @type identity :: map()
  @type refused :: {:error, atom()}

  @doc """
  Subscribes the calling process: `{:ok, session, ref, snapshot, status}`. Where no session is within reach, it and `ref` are `nil`, and the
  snapshot is of what is stored.
  """
  @callback open(place :: term(), identity(), limit :: pos_integer()) ::
              {:ok, pid() | nil, reference() | nil, map(), term()} | refused()

  @doc "Whether somebody may read a conversation now."
  @callback see(place :: term(), identity()) :: :ok | refused()

  @doc "What everybody calls the conversation of an identity, and no other one."
  @callback name(place :: term(), identity()) :: term()

  @doc """
  Says something under a key, and returns the identity with the conversation when it is stored. With the key of an earlier message `behind`, it is only
  said while that one's turn is the last one: otherwise `{:error, :moved}`.
  """
  @callback say(
              place :: term(),
              identity(),
              input :: [map()],
              key :: String.t(),
              behind :: String.t() | nil
            ) ::
              {:ok, identity()} | refused()

  @doc "Makes a conversation that goes on from an iteration of another one, and returns the identity with it."
  @callback fork(place :: term(), identity(), fork :: identity(), iteration :: pos_integer()) ::
              {:ok, identity()} | refused()

  @doc "Says it to the turn that runs. `{:error, :idle}`: none does, and nothing was said."
  @callback steer(place :: term(), identity(), input :: [map()], key :: String.t()) ::
              :ok | refused()

  @doc "Whether a message was said that no session has yet."
  @callback waits?(place :: term(), identity(), key :: String.t()) :: boolean()

  @doc "Ends the turn that runs, or gives up the calls that wait."
  @callback stop(place :: term(), identity()) :: :ok | refused()

  @doc "Decides about a call as it was shown: `:approve`, `{:edit, arguments}`, `:deny` or `{:answer, answer}`."
  @callback decide(
              place :: term(),
              identity(),
              call :: map(),
              verdict :: term(),
              reason :: term()
            ) ::
              :ok | refused()

  @doc "Goes on with a turn."
  @callback resume(place :: term(), identity()) :: :ok | refused()

  @doc "Goes back to the end of an iteration, where nothing runs or waits."
  @callback rewind(place :: term(), identity(), number :: integer()) :: :ok | refused()

  @doc "The kind of an error of the conversation, which is one of what was decided or said."
  def kind(%Context.Error{reason: {:invalid, [field | _], _}}) when field in [:edited, :answer],
    do: :invalid_answer

  def kind(%Context.Error{}), do: :not_waiting
end
