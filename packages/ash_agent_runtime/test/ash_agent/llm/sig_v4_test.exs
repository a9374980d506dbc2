defmodule AshAgent.LLM.Bedrock.SigV4Test do
  use ExUnit.Case, async: true

  alias AshAgent.LLM.Bedrock.SigV4

  doctest AshAgent.LLM.Bedrock.SigV4

  # What AWS publishes to check signers with (awslabs/aws-c-auth, tests/aws-signing-test-suite/v4): name, method, target,
  # headers, body, session token, signature. Left out are the six whose path is not normalized, as S3 alone has it.
  @long_token "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="

  @vectors [
    {"get-header-key-duplicate", "GET", "/",
     [{"My-Header1", "value2"}, {"My-Header1", "value2"}, {"My-Header1", "value1"}], "", nil,
     "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"},
    {"get-header-value-multiline", "GET", "/", [{"My-Header1", "value1 value2 value3"}], "", nil,
     "cfd34249e4b1c8d6b91ef74165d41a32e5fab3306300901bb65a51a73575eefd"},
    {"get-header-value-order", "GET", "/",
     [
       {"My-Header1", "value4"},
       {"My-Header1", "value1"},
       {"My-Header1", "value3"},
       {"My-Header1", "value2"}
     ], "", nil, "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01"},
    {"get-header-value-trim", "GET", "/",
     [{"My-Header1", " value1"}, {"My-Header2", " \"a   b   c\""}], "", nil,
     "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
    {"get-relative-normalized", "GET", "/example/..", [], "", nil,
     "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
    {"get-relative-relative-normalized", "GET", "/example1/example2/../..", [], "", nil,
     "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
    {"get-slash-dot-slash-normalized", "GET", "/./", [], "", nil,
     "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
    {"get-slash-normalized", "GET", "//", [], "", nil,
     "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
    {"get-slash-pointless-dot-normalized", "GET", "/./example", [], "", nil,
     "ef75d96142cf21edca26f06005da7988e4f8dc83a165a80865db7089db637ec5"},
    {"get-slashes-normalized", "GET", "//example//", [], "", nil,
     "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84"},
    {"get-space-normalized", "GET", "/example space/", [], "", nil,
     "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"},
    {"get-unreserved", "GET",
     "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", [], "", nil,
     "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
    {"get-utf8", "GET", "/ሴ", [], "", nil,
     "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
    {"get-vanilla", "GET", "/", [], "", nil,
     "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
    {"get-vanilla-empty-query-key", "GET", "/?Param1=value1", [], "", nil,
     "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"},
    {"get-vanilla-query", "GET", "/", [], "", nil,
     "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
    {"get-vanilla-query-order-encoded", "GET", "/?Param-3=Value3&Param=Value2&%E1%88%B4=Value1",
     [], "", nil, "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac"},
    {"get-vanilla-query-order-key-case", "GET", "/?Param2=value2&Param1=value1", [], "", nil,
     "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
    {"get-vanilla-query-unreserved", "GET",
     "/?-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz=-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
     [], "", nil, "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
    {"get-vanilla-utf8-query", "GET", "/?ሴ=bar", [], "", nil,
     "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
    {"get-vanilla-with-session-token", "GET", "/", [], "",
     "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267",
     "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8"},
    {"post-header-key-case", "POST", "/", [], "", nil,
     "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
    {"post-header-key-sort", "POST", "/", [{"My-Header1", "value1"}], "", nil,
     "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c"},
    {"post-header-value-case", "POST", "/", [{"My-Header1", "VALUE1"}], "", nil,
     "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d"},
    {"post-sts-header-after", "POST", "/", [], "", nil,
     "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
    {"post-sts-header-before", "POST", "/", [], "", @long_token,
     "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"},
    {"post-vanilla", "POST", "/", [], "", nil,
     "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
    {"post-vanilla-empty-query-value", "POST", "/?Param1=value1", [], "", nil,
     "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11"},
    {"post-vanilla-query", "POST", "/?Param1=value1", [], "", nil,
     "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11"},
    {"post-x-www-form-urlencoded", "POST", "/",
     [
       {"Content-Type", "application/x-www-form-urlencoded"},
       {"Content-Length", "13"},
       {"x-amz-content-sha256", :hash}
     ], "Param1=value1", nil, "d3875051da38690788ef43de4db0d8f280229d82040bfac253562e56c3f20e0b"},
    {"post-x-www-form-urlencoded-parameters", "POST", "/",
     [
       {"Content-Type", "application/x-www-form-urlencoded; charset=utf-8"},
       {"Content-Length", "13"},
       {"x-amz-content-sha256", :hash}
     ], "Param1=value1", nil, "328d1b9eaadca9f5818ef05e8392801e091653bafec24fcab71e7344e7f51422"}
  ]

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

    headers =
      for {name, value} <- headers do
        {name,
         if(value == :hash,
           do: :sha256 |> :crypto.hash(body) |> Base.encode16(case: :lower),
           else: value
         )}
      end

    credentials = Map.put(@credentials, :session_token, token)
    SigV4.sign(method, uri, headers, body, credentials, @opts)
  end

  for {name, method, target, headers, body, token, signature} <- @vectors do
    @vector {method, target, headers, body, token, signature}
    test "signs #{name} as AWS does" do
      {method, target, headers, body, token, signature} = @vector

      {_, authorization} =
        method |> sign(target, headers, body, token) |> List.keyfind("authorization", 0)

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
