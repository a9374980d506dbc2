defmodule AshAgent.LLM.Bedrock.SigV4Test do
  use ExUnit.Case, async: true

  alias AshAgent.LLM.Bedrock.SigV4

  doctest AshAgent.LLM.Bedrock.SigV4

  # What AWS publishes to check signers with (awslabs/aws-c-auth, tests/aws-signing-test-suite/v4). Left out are the six whose
  # path is not normalized, as S3 alone has it. A header's value that is `hash` is that of the body.
  @vectors "test/fixtures/sig_v4.json" |> File.read!() |> AshAgent.Context.JSON.decode!()

  @credentials %{
    access_key_id: "AKIDEXAMPLE",
    secret_access_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
  }
  @opts [region: "us-east-1", service: "service", at: ~U[2015-08-30 12:36:00Z]]

  defp sign(method, target, headers, body, token) do
    [path | query] = String.split(target, "?", parts: 2)

    uri = %URI{
      scheme: "https",
      host: "example.amazonaws.com",
      port: 443,
      path: path,
      query: List.first(query)
    }

    hash = :sha256 |> :crypto.hash(body) |> Base.encode16(case: :lower)
    headers = for {name, value} <- headers, do: {name, if(value == "hash", do: hash, else: value)}
    credentials = Map.put(@credentials, :session_token, token)
    SigV4.sign(method, uri, headers, body, credentials, @opts)
  end

  for %{"name" => name} = vector <- @vectors do
    @vector vector
    test "signs #{name} as AWS does" do
      %{"method" => method, "target" => target, "signature" => signature} = @vector
      headers = for [name, value] <- @vector["headers"] || [], do: {name, value}
      signed = sign(method, target, headers, @vector["body"] || "", @vector["token"])
      {_, authorization} = List.keyfind(signed, "authorization", 0)

      assert authorization =~
               ~r/\AAWS4-HMAC-SHA256 Credential=AKIDEXAMPLE\/20150830\/us-east-1\/service\/aws4_request, /

      assert String.ends_with?(authorization, ", Signature=" <> signature)
    end
  end

  test "gives the headers back with those that sign" do
    headers = sign("GET", "/", [{"x", "y"}], "", "token")
    assert {"x", "y"} in headers
    assert {"host", "example.amazonaws.com"} in headers
    assert {"x-amz-date", "20150830T123600Z"} in headers
    assert {"x-amz-security-token", "token"} in headers
  end

  test "signs what is sent: another body, path, header or time is another signature" do
    signature = fn headers -> List.keyfind(headers, "authorization", 0) end
    one = sign("POST", "/a", [{"x", "y"}], ["{", "}"], nil)
    assert signature.(sign("POST", "/a", [{"x", "y"}], "{}", nil)) == signature.(one)

    for other <- [
          sign("POST", "/a", [{"x", "y"}], "{ }", nil),
          sign("POST", "/b", [{"x", "y"}], "{}", nil),
          sign("POST", "/a?b", [{"x", "y"}], "{}", nil),
          sign("POST", "/a", [{"x", "z"}], "{}", nil),
          sign("GET", "/a", [{"x", "y"}], "{}", nil)
        ],
        do: assert(signature.(other) != signature.(one))
  end
end
