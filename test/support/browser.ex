defmodule AshAgent.TestSupport.Browser do
  @moduledoc false

  # A headless Chromium that a test drives by the DevTools protocol, through the pipe that Chromium offers: its file
  # descriptors 3 and 4, which here are the port's own. It ends with the port.

  alias AshAgent.Context.JSON

  defstruct [:port, :folder, :session, scripts?: true]

  @wait 30_000

  def executable,
    do: System.find_executable("chromium") || System.find_executable("chromium-browser")

  @doc "The script of axe-core, if it was installed as CONTRIBUTING.md says."
  def axe do
    file = Path.expand("../../_build/axe/node_modules/axe-core/axe.min.js", __DIR__)
    if File.regular?(file), do: file
  end

  def version do
    {version, 0} = System.cmd(executable(), ["--version"], stderr_to_stdout: true)
    version |> String.split("\n") |> Enum.find("", &(&1 =~ "Chrom")) |> String.trim()
  end

  @doc "Opens a page of its own on a file, and waits until it is loaded."
  def open(file, opts \\ []) do
    # Beside the page: what is left there when the browser ends late goes with the test's own folder.
    folder = Path.join(Path.dirname(file), "browser-#{System.unique_integer([:positive])}")
    File.mkdir_p!(folder)
    browser = %__MODULE__{port: start(folder), folder: folder}
    Process.put({:browser, browser.port}, {0, "", []})
    %{"targetId" => target} = call(browser, "Target.createTarget", %{url: "about:blank"})

    %{"sessionId" => session} =
      call(browser, "Target.attachToTarget", %{targetId: target, flatten: true})

    browser = %{browser | session: session, scripts?: opts[:script] != false}

    for domain <- ~w(Page Runtime Log Network Audits Accessibility DOM),
        do: call(browser, "#{domain}.enable", %{})

    {width, height} = opts[:size] || {1280, 900}

    call(browser, "Emulation.setDeviceMetricsOverride", %{
      width: width,
      height: height,
      deviceScaleFactor: 1,
      mobile: false
    })

    # Pages show the reader's time.
    call(browser, "Emulation.setTimezoneOverride", %{timezoneId: opts[:timezone] || "UTC"})

    unless browser.scripts?,
      do: call(browser, "Emulation.setScriptExecutionDisabled", %{value: true})

    go(browser, "file://#{file}#{opts[:hash]}")
    browser
  end

  def go(browser, url) do
    call(browser, "Page.navigate", %{url: url})
    wait_for(browser, "Page.loadEventFired")
  end

  def close(browser) do
    Port.close(browser.port)
    Process.delete({:browser, browser.port})
    File.rm_rf(browser.folder)
    :ok
  end

  @doc "What an expression gives; a promise is waited for."
  def eval(browser, expression) do
    given = %{expression: expression, returnByValue: true, awaitPromise: true}

    case call(browser, "Runtime.evaluate", given) do
      %{"exceptionDetails" => details} -> raise "#{expression}: #{inspect(details)}"
      %{"result" => result} -> result["value"]
    end
  end

  def text(browser, selector),
    do: eval_drawn(browser, "document.querySelector(#{quoted(selector)})?.innerText")

  def texts(browser, selector),
    do:
      eval_drawn(
        browser,
        "[...document.querySelectorAll(#{quoted(selector)})].map(one => one.innerText)"
      )

  # What a page lays out only where it is seen has no inner text before a frame has been drawn.
  defp eval_drawn(%{scripts?: false} = browser, expression), do: eval(browser, expression)

  defp eval_drawn(browser, expression) do
    eval(browser, """
    new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn))).then(() => #{expression})
    """)
  end

  @doc "Clicks the first element whose text begins so, with a real mouse event."
  def click(browser, selector, text \\ "") do
    eval_drawn(browser, """
    (() => {
      const found = [...document.querySelectorAll(#{quoted(selector)})].find(one => one.innerText.startsWith(#{quoted(text)}));
      if (!found) throw new Error('nothing to click on');
      found.scrollIntoView({ block: 'nearest' });
      window.clicked = found;
    })()
    """)

    [x, y] =
      eval(browser, """
      (() => { const at = window.clicked.getBoundingClientRect(); return [at.x + at.width / 2, at.y + at.height / 2]; })()
      """)

    for type <- ~w(mousePressed mouseReleased) do
      call(browser, "Input.dispatchMouseEvent", %{
        type: type,
        x: x,
        y: y,
        button: "left",
        clickCount: 1
      })
    end

    settle(browser)
  end

  @doc "Presses keys, one after the other."
  def press(browser, keys) do
    for key <- List.wrap(keys) do
      text = if String.length(key) == 1, do: %{text: key}, else: %{}
      call(browser, "Input.dispatchKeyEvent", Map.merge(%{type: "keyDown", key: key}, text))
      call(browser, "Input.dispatchKeyEvent", %{type: "keyUp", key: key})
    end

    settle(browser)
  end

  def type(browser, text) do
    call(browser, "Input.insertText", %{text: text})
    eval(browser, "new Promise(done => setTimeout(done, 250))")
    settle(browser)
  end

  @doc "Waits for the page to have drawn what it draws."
  def settle(browser) do
    eval(browser, "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    browser
  end

  def screenshot(browser, file, opts \\ %{}) do
    %{"data" => data} = call(browser, "Page.captureScreenshot", Map.merge(%{format: "png"}, opts))
    File.write!(file, Base.decode64!(data))
  end

  @doc "What the browser complained of since it was opened, and what it asked the network for."
  def complaints(browser) do
    # Whatever it has to say comes before this answer. A page without scripts draws no frame that could be waited for.
    eval(browser, "0")
    receive do: (:never -> :ok), after: (100 -> :ok)
    eval(browser, "0")
    {_id, _rest, events} = Process.get({:browser, browser.port})

    for %{"method" => method, "params" => params} <- Enum.reverse(events),
        complaint?(method, params) do
      {method, params}
    end
  end

  defp complaint?("Network.requestWillBeSent", %{"request" => %{"url" => url}}),
    do: not String.starts_with?(url, ["file:", "data:", "about:"])

  defp complaint?("Log.entryAdded", %{"entry" => %{"level" => level}}),
    do: level in ~w(error warning)

  defp complaint?(method, _params),
    do:
      method in ~w(Runtime.exceptionThrown Runtime.consoleAPICalled Audits.issueAdded Page.javascriptDialogOpening)

  @doc "Sends a command and waits for its answer."
  def call(browser, method, params) do
    {id, rest, events} = Process.get({:browser, browser.port})
    Process.put({:browser, browser.port}, {id + 1, rest, events})
    message = %{id: id + 1, method: method, params: params}
    message = if browser.session, do: Map.put(message, :sessionId, browser.session), else: message
    Port.command(browser.port, [JSON.encode(message), 0])

    case receive_until(browser, &(&1["id"] == id + 1)) do
      %{"result" => result} -> result
      %{"error" => error} -> raise "#{method}: #{inspect(error)}"
    end
  end

  def wait_for(browser, method) do
    {_id, _rest, events} = Process.get({:browser, browser.port})
    seen = Enum.count(events, &(&1["method"] == method))
    asked = Process.get({:loads, browser.port}, 0)
    Process.put({:loads, browser.port}, asked + 1)
    if seen <= asked, do: receive_until(browser, &(&1["method"] == method))
    browser
  end

  defp receive_until(browser, wanted?) do
    {id, rest, events} = Process.get({:browser, browser.port})

    case String.split(rest, <<0>>, parts: 2) do
      [message, rest] ->
        {:ok, message} = JSON.decode(message)
        events = if message["method"], do: [message | events], else: events
        Process.put({:browser, browser.port}, {id, rest, events})
        if wanted?.(message), do: message, else: receive_until(browser, wanted?)

      [_part] ->
        receive_data(browser)
        receive_until(browser, wanted?)
    end
  end

  defp receive_data(%{port: port}) do
    receive do
      {^port, {:data, data}} ->
        {id, rest, events} = Process.get({:browser, port})
        Process.put({:browser, port}, {id, rest <> data, events})

      {^port, {:exit_status, status}} ->
        raise "Chromium ended with #{status}"
    after
      @wait ->
        {:os_pid, pid} = Port.info(port, :os_pid)
        System.cmd("kill", ["-KILL", "#{pid}"])
        raise "Chromium does not answer"
    end
  end

  defp start(folder) do
    options =
      ~w(--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --remote-debugging-pipe) ++
        ~w(--disable-background-networking --disable-component-update --disable-extensions --disable-features=IsolateSandboxedIframes --disable-sync --mute-audio) ++
        ~w(--hide-scrollbars --user-data-dir=#{folder})

    Port.open({:spawn_executable, "/bin/sh"}, [
      :binary,
      :exit_status,
      # bin/sanitize watches the VM's memory. Chromium does not start under it.
      env: [{~c"LD_PRELOAD", false}],
      args: [
        "-c",
        "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1",
        "sh",
        executable() | options
      ]
    ])
  end

  defp quoted(text), do: text |> JSON.encode() |> IO.iodata_to_binary()
end
