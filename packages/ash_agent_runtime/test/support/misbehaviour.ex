defmodule AshAgent.TestSupport.Misbehaviour do
  @moduledoc false

  # The kinds of `AshAgent.Test.Server`, each with what it comes to, and the options of a client that meets it.

  alias AshAgent.Test.Server

  @key "sk-key-that-nobody-may-see"
  @answer "Grüße, Welt!"

  # What each comes to: the kind and the reason of an `AshAgent.LLM.Error`, or `:ok` where the client gets an answer.
  @kinds [
    busy_once: :ok,
    busy_forever: {:rate_limited, {:status, 429}},
    busy_for_20_minutes: {:rate_limited, {:status, 429}},
    no_money: {:quota, {:status, 429}},
    broken: {:server_error, {:status, 500}},
    broken_once: :ok,
    wrong_key: {:unauthorized, {:status, 401}},
    too_long: {:context_overflow, {:status, 400}},
    not_found: {:invalid_request, {:status, 404}},
    gateway_page: {:server_error, {:status, 502}},
    page_with_200: {:invalid_response, :invalid_response},
    empty_body: {:closed, :incomplete},
    garbage: {:invalid_response, :invalid_response},
    redirect: {:invalid_response, {:status, 307}},
    cut_within_an_event: {:closed, :connection},
    cut_between_events: {:closed, :incomplete},
    error_in_the_stream: {:overloaded, :provider},
    idle: {:timeout, {:timeout, :idle}},
    never_ending: {:timeout, :timeout},
    silent: {:timeout, {:timeout, :first_byte}},
    too_large: {:invalid_response, :response_too_large},
    refused_connection: {:unreachable, :connection},
    unknown_host: {:unreachable, :connection},
    arguments_without_json: :ok,
    same_call_forever: :ok
  ]

  @doc "The kinds, each with what it comes to."
  def kinds, do: @kinds

  @doc "The key that no message may have. The server repeats it wherever it uses words."
  def key, do: @key

  @doc "Starts a server, and returns the options of a client that meets it."
  def start(:refused_connection, _provider), do: options(Server.refused_url(), [])
  def start(:unknown_host, _provider), do: options("http://nowhere.invalid/v1", [])

  def start(kind, provider) do
    opts = [script: script(kind), words: " (#{@key})"]
    opts = if provider == :mistral, do: [provider: :mistral] ++ opts, else: opts
    {:ok, server} = Server.start_link(opts)
    server |> Server.base_url() |> options(limits(kind))
  end

  defp script(:busy_once), do: [:busy, @answer]
  defp script(:broken_once), do: [:broken, @answer]
  defp script(:busy_forever), do: fn _request -> :busy end
  defp script(:arguments_without_json), do: [call("{\"to\": Ann"), @answer]
  defp script(:same_call_forever), do: fn _request -> call("{}") end
  defp script(kind), do: fn _request -> {kind, @answer} end

  defp call(arguments), do: %{tool_calls: [%{id: "call_1", name: "pay", arguments: arguments}]}

  defp options(url, limits) do
    own = [model: "m", base_url: url, api_key: @key, region: "eu-central-1"]
    Keyword.merge([max_retries: 1] ++ own, limits)
  end

  defp limits(:idle), do: [idle_timeout: 100]
  defp limits(:never_ending), do: [timeout: 300]
  defp limits(:silent), do: [first_byte_timeout: 100, max_retries: 0]
  defp limits(_kind), do: []
end
