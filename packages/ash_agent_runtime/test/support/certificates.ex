defmodule AshAgent.TestSupport.Certificates do
  @moduledoc "Makes certificates for a server on localhost and for clients that trust it."

  def make do
    {:ok, _} = Application.ensure_all_started(:ssl)
    name = {:Extension, {2, 5, 29, 17}, false, [dNSName: ~c"localhost"]}
    # OTP 27 takes no SHA-1, which is what is signed with when nothing is said.
    key = [key: {:namedCurve, :secp256r1}, digest: :sha256]

    %{server_config: server, client_config: client} =
      :public_key.pkix_test_data(%{
        server_chain: %{root: key, intermediates: [], peer: key ++ [extensions: [name]]},
        client_chain: %{root: key, intermediates: [], peer: key}
      })

    %{tls: server ++ [log_level: :none], trusted: [cacerts: client[:cacerts]]}
  end
end
