defmodule AshAgent.ProvenanceTest do
  use ExUnit.Case, async: true

  alias AshAgent.{Context, Provenance}

  @moduletag :tmp_dir

  @file_bytes "the library"
  @workflow "https://github.com/someone/something/.github/workflows/release.yml@refs/tags/v1.2.3"
  @signed_at 1_767_225_900
  @payload_type "application/vnd.in-toto+json"
  @expected %{repository: "someone/something", workflow: "release.yml", ref: nil}

  # An authority and a log as Sigstore's, and what they make of a file.
  setup do
    authority = generate_key()
    log = generate_key()

    roots = %{
      authorities: [certify("authority", authority, "authority", authority, [])],
      logs: [public_der(log)]
    }

    %{authority: authority, log: log, roots: roots}
  end

  test "says which workflow built a file, from which commit, and when", context do
    assert {:ok, found} = verify(context, bundle(context))
    assert found.workflow == @workflow
    assert found.commit == "c0ffee"
    assert found.signed_at == ~U[2026-01-01 00:05:00Z]

    assert {:ok, ^found} = verify(context, bundle(context, kind: "intoto"))

    assert {:ok, ^found} =
             verify(context, bundle(context), %{@expected | ref: "refs/tags/v1.2.3"})
  end

  for {what, options, words} <- [
        {"a statement about other files", [digest: "00"], "about other files"},
        {"a statement of another kind", [predicate: "https://slsa.dev/provenance/v0.2"],
         "does not say where"},
        {"a statement that was changed", [payload_of: :other], "about another signature"},
        {"a signature with another key", [signer: :other],
         "not signed with the certificate's key"},
        {"an entry about another signature", [logged: :other], "about another signature"},
        {"an entry that the log did not sign", [promise: :other], "the log did not sign"},
        {"a log that nobody trusts", [log: :other], "not one of those that are trusted"},
        {"an authority that nobody trusts", [authority: :other],
         "not signed by an authority that is trusted"},
        {"a time before the certificate", [signed_at: @signed_at - 600], "was not valid when"},
        {"a time after the certificate", [signed_at: @signed_at + 600], "was not valid when"},
        {"a certificate that is for something else", [usage: {1, 3, 6, 1, 5, 5, 7, 3, 1}],
         "not for signing code"},
        {"a token of somebody else", [issuer: "https://accounts.example.com"],
         "not given to a workflow of GitHub"},
        {"another repository",
         [workflow: String.replace(@workflow, "someone/something", "someone/else")],
         "someone/else/"},
        {"another workflow", [workflow: String.replace(@workflow, "release.yml", "test.yml")],
         "test.yml"},
        {"a branch", [workflow: String.replace(@workflow, "refs/tags/v1.2.3", "refs/heads/main")],
         "refs/heads/main, not by"}
      ] do
    test "refuses #{what}", context do
      options = unquote(Macro.escape(options))
      assert {:error, sentence} = verify(context, bundle(context, options))
      assert sentence =~ unquote(words)
    end
  end

  test "refuses another tag than the one that was asked for, and another file", context do
    assert {:error, sentence} =
             verify(context, bundle(context), %{@expected | ref: "refs/tags/v1.2"})

    assert sentence =~ "v1.2.3, not by"

    assert {:error, sentence} =
             Provenance.verify("another", bundle(context), @expected, context.roots)

    assert sentence =~ "about other files"
  end

  test "refuses every bundle with a changed or missing part, and raises for none", context do
    bundle = bundle(context)

    for position <- 0..(byte_size(bundle) - 1)//7 do
      <<before::binary-size(position), byte, rest::binary>> = bundle
      changed = <<before::binary, rem(byte + 1, 128), rest::binary>>

      case verify(context, changed) do
        # White space, names that are not read, or bits of Base64 that say nothing.
        {:ok, found} -> assert found.workflow == @workflow and found.commit == "c0ffee"
        {:error, sentence} -> assert is_binary(sentence)
      end

      assert {:error, _} = verify(context, before)
    end
  end

  test "the keys of Sigstore's public instance can be read" do
    assert %{authorities: [authority], logs: [log]} = Provenance.public_roots()
    assert {:OTPCertificate, _, _, _} = :public_key.pkix_decode_cert(authority, :otp)

    # The id under which the log's entries name it.
    assert Base.encode64(:crypto.hash(:sha256, log)) ==
             "wNI9atQGlz+VWfO6LRygH4QUfY/8W4RFwiT5i5WRgB0="
  end

  describe "mix ash_agent.verify" do
    setup %{tmp_dir: dir} = context do
      file = Path.join(dir, "library.so.tar.gz")
      File.write!(file, @file_bytes)
      File.write!(file <> ".sigstore.json", bundle(context))
      root = Path.join(dir, "trusted_root.json")
      File.write!(root, trusted_root(context.roots))
      %{path: file, args: [file, "--repository", "someone/something", "--trusted-root", root]}
    end

    test "says who built a file, and what was not checked", %{args: args} do
      words = ExUnit.CaptureIO.capture_io(fn -> Mix.Tasks.AshAgent.Verify.run(args) end)
      assert words =~ "was built by #{@workflow}\nfrom the commit c0ffee"
      assert words =~ "Not checked: the log's tree"
    end

    test "raises for a file that is not verified, and for wrong arguments", %{
      args: args,
      path: file
    } do
      File.write!(file, "another library")

      for {args, words} <- [
            {args, "is not verified: the statement is about other files"},
            {Enum.take(args, 3), "the log is not one of those that are trusted"},
            {Enum.take(args, 1), "--repository is missing"},
            {args ++ ["--bundle", file], "not an attestation by Sigstore"},
            {args ++ ["--bundle", file <> ".none"], "cannot be read"},
            {args ++ ["--trusted-root", file], "no certificateAuthorities"},
            {["--wrong"], "usage: mix ash_agent.verify"}
          ] do
        assert_raise Mix.Error, ~r/#{Regex.escape(words)}/, fn ->
          Mix.Tasks.AshAgent.Verify.run(args)
        end
      end
    end
  end

  ## What GitHub and Sigstore do

  defp verify(context, bundle, expected \\ @expected),
    do: Provenance.verify(@file_bytes, bundle, expected, context.roots)

  defp bundle(context, options \\ []) do
    signer = generate_key()
    authority = choose(options[:authority], context.authority)
    log = choose(options[:log], context.log)

    certificate =
      certify("", signer, "authority", authority, [
        {:Extension, {2, 5, 29, 37}, false, [options[:usage] || {1, 3, 6, 1, 5, 5, 7, 3, 3}]},
        {:Extension, {2, 5, 29, 17}, true,
         [uniformResourceIdentifier: String.to_charlist(options[:workflow] || @workflow)]},
        {:Extension, {1, 3, 6, 1, 4, 1, 57_264, 1, 1}, false,
         options[:issuer] || "https://token.actions.githubusercontent.com"},
        {:Extension, {1, 3, 6, 1, 4, 1, 57_264, 1, 3}, false, "c0ffee"}
      ])

    payload = statement(options)

    signed =
      "DSSEv1 #{byte_size(@payload_type)} #{@payload_type} #{byte_size(payload)} #{payload}"

    signature = :public_key.sign(signed, :sha256, choose(options[:signer], signer))
    logged = if options[:logged] == :other, do: "another", else: signature
    body = payload |> log_entry(logged, certificate, options[:kind]) |> Base.encode64()
    id = :crypto.hash(:sha256, public_der(log))
    time = options[:signed_at] || @signed_at

    promised =
      ~s({"body":"#{body}","integratedTime":#{time},"logID":"#{Base.encode16(id, case: :lower)}","logIndex":7})

    promise = :public_key.sign(promised, :sha256, choose(options[:promise], log))
    payload = if options[:payload_of] == :other, do: payload <> " ", else: payload

    Context.JSON.encode(%{
      "dsseEnvelope" => %{
        "payload" => Base.encode64(payload),
        "payloadType" => @payload_type,
        "signatures" => [%{"sig" => Base.encode64(signature)}]
      },
      "verificationMaterial" => %{
        "certificate" => %{"rawBytes" => Base.encode64(certificate)},
        "tlogEntries" => [
          %{
            "canonicalizedBody" => body,
            "integratedTime" => "#{time}",
            "logIndex" => "7",
            "logId" => %{"keyId" => Base.encode64(id)},
            "inclusionPromise" => %{"signedEntryTimestamp" => Base.encode64(promise)}
          }
        ]
      }
    })
  end

  defp statement(options) do
    digest = options[:digest] || Base.encode16(:crypto.hash(:sha256, @file_bytes), case: :lower)

    Context.JSON.encode(%{
      "_type" => "https://in-toto.io/Statement/v1",
      "subject" => [
        %{"name" => "first.tar.gz", "digest" => %{"sha256" => "ff"}},
        %{"name" => "library.so.tar.gz", "digest" => %{"sha256" => digest}}
      ],
      "predicateType" => options[:predicate] || "https://slsa.dev/provenance/v1",
      "predicate" => %{}
    })
  end

  defp log_entry(payload, signature, certificate, kind) do
    pem = Base.encode64(:public_key.pem_encode([{:Certificate, certificate, :not_encrypted}]))

    hash = %{
      "algorithm" => "sha256",
      "value" => Base.encode16(:crypto.hash(:sha256, payload), case: :lower)
    }

    signature = Base.encode64(signature)

    spec =
      if kind == "intoto" do
        one = %{"sig" => Base.encode64(signature), "publicKey" => pem}
        %{"content" => %{"payloadHash" => hash, "envelope" => %{"signatures" => [one]}}}
      else
        %{
          "payloadHash" => hash,
          "signatures" => [%{"signature" => signature, "verifier" => pem}]
        }
      end

    Context.JSON.encode(%{"kind" => kind || "dsse", "spec" => spec})
  end

  defp trusted_root(roots) do
    [authorities, logs] =
      for list <- [roots.authorities, roots.logs],
          do: for(raw <- list, do: %{"rawBytes" => Base.encode64(raw)})

    keys = for key <- logs, do: Map.put(key, "keyDetails", "PKIX_ECDSA_P256_SHA_256")

    Context.JSON.encode(%{
      "certificateAuthorities" => [%{"certChain" => %{"certificates" => authorities}}],
      "tlogs" => for(key <- keys, do: %{"publicKey" => key})
    })
  end

  defp choose(:other, _key), do: generate_key()
  defp choose(nil, key), do: key

  defp generate_key, do: :public_key.generate_key({:namedCurve, :secp256r1})

  defp public(key), do: {{:ECPoint, elem(key, 4)}, elem(key, 3)}

  defp public_der(key) do
    {:SubjectPublicKeyInfo, der, :not_encrypted} =
      :public_key.pem_entry_encode(:SubjectPublicKeyInfo, public(key))

    der
  end

  # Valid for the first ten minutes of 2026.
  defp certify(subject, key, issuer, issuer_key, extensions) do
    {point, curve} = public(key)

    :public_key.pkix_sign(
      {:OTPTBSCertificate, :v3, 1,
       {:SignatureAlgorithm, {1, 2, 840, 10_045, 4, 3, 2}, :asn1_NOVALUE}, name(issuer),
       {:Validity, {:utcTime, ~c"260101000000Z"}, {:utcTime, ~c"260101001000Z"}}, name(subject),
       {:OTPSubjectPublicKeyInfo, {:PublicKeyAlgorithm, {1, 2, 840, 10_045, 2, 1}, curve}, point},
       :asn1_NOVALUE, :asn1_NOVALUE, extensions},
      issuer_key
    )
  end

  defp name(""), do: {:rdnSequence, []}

  defp name(text),
    do: {:rdnSequence, [[{:AttributeTypeAndValue, {2, 5, 4, 3}, {:utf8String, text}}]]}
end
