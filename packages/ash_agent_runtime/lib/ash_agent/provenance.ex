defmodule AshAgent.Provenance do
  @moduledoc false
  # Says who built a file, by an attestation that GitHub's `attest-build-provenance` made of it and Sigstore signed.
  #
  # The digest of the file is in a statement, the statement is signed with a key, the key is in a certificate that names the workflow, the
  # certificate is signed by Sigstore's authority and was valid when Sigstore's log saw the signature, and the log signed that time.
  # Each link is checked here, with OTP alone and without a network. Not checked are the log's proof that the entry is part of its tree
  # (it has promised so), whether a log of certificates has seen the certificate, and what else the statement says of the build.

  alias AshAgent.Context.JSON

  # Sigstore's public instance, as in its trusted_root.json: the authority is valid until October 2031.
  @authority """
  MIICGjCCAaGgAwIBAgIUALnViVfnU0brJasmRkHrn/UnfaQwCgYIKoZIzj0EAwMwKjEVMBMGA1UEChMMc2lnc3RvcmUuZGV2MREw
  DwYDVQQDEwhzaWdzdG9yZTAeFw0yMjA0MTMyMDA2MTVaFw0zMTEwMDUxMzU2NThaMDcxFTATBgNVBAoTDHNpZ3N0b3JlLmRldjEe
  MBwGA1UEAxMVc2lnc3RvcmUtaW50ZXJtZWRpYXRlMHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE8RVS/ysH+NOvuDZyPIZtilgUF9Nl
  arYpAd9HP1vBBH1U5CV77LSS7s0ZiH4nE7Hv7ptS6LvvR/STk798LVgMzLlJ4HeIfF3tHSaexLcYpSASr1kS0N/RgBJz/9jWCiXn
  o3sweTAOBgNVHQ8BAf8EBAMCAQYwEwYDVR0lBAwwCgYIKwYBBQUHAwMwEgYDVR0TAQH/BAgwBgEB/wIBADAdBgNVHQ4EFgQU39Pp
  z1YkEZb5qNjpKFWixi4YZD8wHwYDVR0jBBgwFoAUWMAeX5FFpWapesyQoZMi0CrFxfowCgYIKoZIzj0EAwMDZwAwZAIwPCsQK4DY
  iZYDPIaDi5HFKnfxXx6ASSVmERfsynYBiX2X6SJRnZU84/9DZdnFvvxmAjBOt6QpBlc4J/0DxvkTCqpclvziL6BCCPnjdlIB3Pu3
  BxsPmygUY7Ii2zbdCdliiow=
  """

  @log """
  MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE2G2Y+2tabdTV5BcGiBIx0a9fAFwrkBbmLSGtks4L3qX6yYY0zufBnhC8Ur/iy55G
  hWP/9A/bY2LhC30M9+RYtw==
  """

  @issuer "https://token.actions.githubusercontent.com"
  @payload_type "application/vnd.in-toto+json"
  @predicate_type "https://slsa.dev/provenance/v1"

  # Extensions of Sigstore's certificates: who signed the token, and the commit.
  @issuer_oid {1, 3, 6, 1, 4, 1, 57_264, 1, 1}
  @commit_oid {1, 3, 6, 1, 4, 1, 57_264, 1, 3}
  @name_oid {2, 5, 29, 17}
  @usage_oid {2, 5, 29, 37}
  @code_signing_oid {1, 3, 6, 1, 5, 5, 7, 3, 3}

  @doc "Returns the authority and the log of Sigstore's public instance, as DER."
  def public_roots do
    %{authorities: [decode64!(@authority)], logs: [decode64!(@log)]}
  end

  @doc "Reads authorities and logs from a `trusted_root.json`."
  def read_roots(text) do
    with {:ok, %{"certificateAuthorities" => authorities, "tlogs" => logs}} <- JSON.decode(text) do
      certificates =
        for %{"certChain" => %{"certificates" => chain}} <- authorities, one <- chain, do: one

      keys =
        for %{"publicKey" => %{"keyDetails" => "PKIX_ECDSA_P256_SHA_256"} = key} <- logs, do: key

      [authorities, logs] =
        for list <- [certificates, keys],
            do: for(%{"rawBytes" => raw} <- list, do: decode64!(raw))

      {:ok, %{authorities: authorities, logs: logs}}
    else
      _ -> {:error, "the file of trusted roots has no certificateAuthorities and tlogs"}
    end
  end

  @doc """
  Verifies that `workflow` of `repository` built a file, and returns `{:ok, %{workflow: address, commit: hash, signed_at: time}}`,
  or `{:error, sentence}` that names the first link that does not hold.

  `expected` has `:repository`, `:workflow`, and `:ref`, which is `nil` for any tag.
  """
  def verify(bytes, bundle, expected, roots) do
    with {:ok, bundle} <- decode_bundle(bundle),
         {:ok, time} <- check_log(bundle, roots.logs),
         {:ok, certificate} <- check_certificate(bundle.certificate, time, roots.authorities),
         :ok <- check_signature(bundle, certificate),
         {:ok, workflow} <- check_workflow(certificate, expected),
         :ok <- check_statement(bundle.payload, bytes) do
      commit = find_extension(certificate, @commit_oid)
      {:ok, %{workflow: workflow, commit: commit, signed_at: DateTime.from_unix!(time)}}
    end
  end

  ## The bundle

  defp decode_bundle(text) do
    with {:ok, %{"dsseEnvelope" => envelope, "verificationMaterial" => material}} <-
           JSON.decode(text),
         %{
           "payloadType" => @payload_type,
           "payload" => payload,
           "signatures" => [%{"sig" => signature}]
         } <- envelope,
         %{"tlogEntries" => [entry]} <- material,
         {:ok, certificate} <- fetch_certificate(material),
         {:ok, payload} <- Base.decode64(payload),
         {:ok, certificate} <- Base.decode64(certificate),
         {:ok, signature} <- Base.decode64(signature) do
      {:ok, %{payload: payload, signature: signature, certificate: certificate, entry: entry}}
    else
      _ ->
        {:error,
         "the bundle is not an attestation by Sigstore with one signature and one entry of its log"}
    end
  end

  defp fetch_certificate(%{"certificate" => %{"rawBytes" => raw}}) when is_binary(raw),
    do: {:ok, raw}

  defp fetch_certificate(%{
         "x509CertificateChain" => %{"certificates" => [%{"rawBytes" => raw} | _]}
       })
       when is_binary(raw),
       do: {:ok, raw}

  defp fetch_certificate(_material), do: :error

  ## The log: when it saw this signature

  defp check_log(%{entry: entry} = bundle, logs) do
    with %{
           "canonicalizedBody" => body,
           "integratedTime" => time,
           "logIndex" => index,
           "logId" => %{"keyId" => id},
           "inclusionPromise" => %{"signedEntryTimestamp" => promise}
         } <- entry,
         {:ok, id} <- Base.decode64(id),
         {:ok, promise} <- Base.decode64(promise),
         {time, ""} <- Integer.parse(time),
         {index, ""} <- Integer.parse(index),
         {:ok, claims} <- Base.decode64(body),
         {:ok, claims} <- JSON.decode(claims) do
      log = Enum.find(logs, &(:crypto.hash(:sha256, &1) == id))
      # Its keys in this order, without white space: so it was signed.
      promised =
        ~s({"body":"#{body}","integratedTime":#{time},"logID":"#{Base.encode16(id, case: :lower)}","logIndex":#{index}})

      cond do
        log == nil ->
          {:error, "the log is not one of those that are trusted"}

        not verify_signature?(promised, promise, decode_key(log)) ->
          {:error, "the log did not sign this entry"}

        not about?(claims, bundle) ->
          {:error, "the log's entry is about another signature"}

        true ->
          {:ok, time}
      end
    else
      _ -> {:error, "the log's entry has no time that it signed"}
    end
  end

  defp about?(
         %{"kind" => "dsse", "spec" => %{"payloadHash" => hash, "signatures" => [one]}},
         bundle
       ),
       do: about?(hash, one["signature"], one["verifier"], bundle)

  # The form before, in which the signature is encoded twice.
  defp about?(
         %{
           "kind" => "intoto",
           "spec" => %{
             "content" => %{"payloadHash" => hash, "envelope" => %{"signatures" => [one]}}
           }
         },
         bundle
       ) do
    case Base.decode64(one["sig"] || "") do
      {:ok, signature} -> about?(hash, signature, one["publicKey"], bundle)
      :error -> false
    end
  end

  defp about?(_claims, _bundle), do: false

  defp about?(%{"algorithm" => "sha256", "value" => hash}, signature, pem, bundle)
       when is_binary(pem) do
    with {:ok, pem} <- Base.decode64(pem),
         [{:Certificate, certificate, :not_encrypted}] <- :public_key.pem_decode(pem) do
      hash == Base.encode16(:crypto.hash(:sha256, bundle.payload), case: :lower) and
        signature == Base.encode64(bundle.signature) and certificate == bundle.certificate
    else
      _ -> false
    end
  end

  defp about?(_hash, _signature, _pem, _bundle), do: false

  ## The certificate: signed by an authority, valid at that time, for code

  defp check_certificate(der, time, authorities) do
    with {:ok, certificate} <- decode_certificate(der),
         {:ok, authority} <- find_authority(der, authorities) do
      cond do
        not valid_at?(certificate, time) or not valid_at?(authority, time) ->
          {:error, "the certificate was not valid when the log saw the signature"}

        @code_signing_oid not in (find_extension(certificate, @usage_oid) || []) ->
          {:error, "the certificate is not for signing code"}

        true ->
          {:ok, certificate}
      end
    end
  end

  defp decode_certificate(der) do
    {:ok, :public_key.pkix_decode_cert(der, :otp)}
  rescue
    _ -> {:error, "the bundle has no certificate that can be read"}
  end

  defp find_authority(der, authorities) do
    found =
      Enum.find_value(authorities, fn authority ->
        authority = :public_key.pkix_decode_cert(authority, :otp)

        if :public_key.pkix_is_issuer(der, authority) and
             :public_key.pkix_verify(der, key_of(authority)),
           do: authority
      end)

    if found,
      do: {:ok, found},
      else: {:error, "the certificate is not signed by an authority that is trusted"}
  end

  defp valid_at?(certificate, time) do
    {:Validity, from, until} = certificate |> elem(1) |> elem(5)
    seconds(from) <= time and time <= seconds(until)
  end

  defp seconds({:utcTime, [a, b | rest]}), do: seconds({:generalTime, [?2, ?0, a, b | rest]})

  defp seconds({:generalTime, text}) do
    <<y::binary-4, m::binary-2, d::binary-2, h::binary-2, n::binary-2, s::binary-2, "Z">> =
      List.to_string(text)

    {:ok, time, 0} = DateTime.from_iso8601("#{y}-#{m}-#{d}T#{h}:#{n}:#{s}Z")
    DateTime.to_unix(time)
  end

  ## The signature: over the payload and its type, each with its length

  defp check_signature(%{payload: payload, signature: signature}, certificate) do
    signed =
      "DSSEv1 #{byte_size(@payload_type)} #{@payload_type} #{byte_size(payload)} #{payload}"

    if verify_signature?(signed, signature, key_of(certificate)),
      do: :ok,
      else: {:error, "the statement is not signed with the certificate's key"}
  end

  defp verify_signature?(bytes, signature, key) do
    :public_key.verify(bytes, :sha256, signature, key)
  rescue
    _ -> false
  end

  defp key_of(certificate) do
    {:OTPSubjectPublicKeyInfo, {:PublicKeyAlgorithm, _oid, parameters}, point} =
      certificate |> elem(1) |> elem(7)

    {point, parameters}
  end

  defp decode_key(der),
    do: :public_key.pem_entry_decode({:SubjectPublicKeyInfo, der, :not_encrypted})

  ## Who: the workflow that asked for the certificate

  defp check_workflow(certificate, expected) do
    wanted =
      "https://github.com/#{expected.repository}/.github/workflows/#{expected.workflow}@#{expected.ref || "refs/tags/"}"

    with @issuer <- find_extension(certificate, @issuer_oid),
         [uniformResourceIdentifier: name] <- find_extension(certificate, @name_oid) do
      name = List.to_string(name)

      if name == wanted or (expected.ref == nil and String.starts_with?(name, wanted)),
        do: {:ok, name},
        else: {:error, "it was built by #{name}, not by #{wanted}"}
    else
      _ -> {:error, "the certificate was not given to a workflow of GitHub"}
    end
  end

  defp find_extension(certificate, oid) do
    Enum.find_value(certificate |> elem(1) |> elem(10), fn
      {:Extension, ^oid, _critical, value} -> value
      _ -> nil
    end)
  end

  ## What: the statement names the file

  defp check_statement(payload, bytes) do
    with {:ok, %{"predicateType" => @predicate_type, "subject" => subjects}}
         when is_list(subjects) <- JSON.decode(payload) do
      digests =
        for {name, hash} <- [{"sha256", :sha256}, {"sha512", :sha512}],
            do: {name, Base.encode16(:crypto.hash(hash, bytes), case: :lower)}

      if Enum.any?(subjects, &names?(&1, digests)),
        do: :ok,
        else: {:error, "the statement is about other files than this one"}
    else
      _ -> {:error, "the statement does not say where a file was built"}
    end
  end

  defp names?(%{"digest" => %{} = digest}, digests),
    do: Enum.any?(digests, fn {name, value} -> digest[name] == value end)

  defp names?(_subject, _digests), do: false

  defp decode64!(text), do: Base.decode64!(text, ignore: :whitespace)
end
