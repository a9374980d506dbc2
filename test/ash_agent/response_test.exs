defmodule AshAgent.ResponseTest do
  use ExUnit.Case, async: true

  doctest AshAgent.Response

  alias AshAgent.{Context, Response}
end
