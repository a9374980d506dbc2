defmodule AshAgent.DocLinks do
  @compile {:no_warn_undefined, ExDoc.Markdown.Earmark}

  # The pages link to each other as files of the repository. Where they are read as documentation, those of another package are
  # on the site of that package. ExDoc gets this as the `:markdown_processor` of all packages.

  @site "https://hexdocs.pm"

  @links [
    # packages/ash_agent_runtime/guides/runtime.md, from the root or its guides
    {~r/\]\((?:\.\.\/)*packages\/(\w+)\/guides\/([\w-]+)\.md/, "](#{@site}/\\1/\\2.html"},
    {~r/\]\((?:\.\.\/)*packages\/(\w+)\/README\.md/, "](#{@site}/\\1/readme.html"},
    # from one package to another
    {~r/\]\((?:\.\.\/)+(ash_agent_\w+)\/guides\/([\w-]+)\.md/, "](#{@site}/\\1/\\2.html"},
    {~r/\]\((?:\.\.\/)+(ash_agent_\w+)\/README\.md/, "](#{@site}/\\1/readme.html"},
    # from a package to the root
    {~r/\]\((?:\.\.\/){2,}guides\/([\w-]+)\.\w+/, "](#{@site}/ash_agent_context/\\1.html"},
    {~r/\]\((?:\.\.\/){2,}README\.md/, "](#{@site}/ash_agent_context/readme.html"},
    {~r/\]\((?:\.\.\/){2,}(\w+)\.md/, "](#{@site}/ash_agent_context/\\1.html"},
    # from the words of Ash that the cheat sheets quote
    {~r/\]\(\/documentation\/topics\/(?:\w+\/)*([\w-]+)\.md/, "](#{@site}/ash/\\1.html"},
    # pictures are beside the pages
    {~r/\]\((?:\.\.\/)+assets\//, "](assets/"}
  ]

  def available?, do: true

  @doc """
  ExDoc's `:filter_modules`: leaves out what tests alone need, which is compiled in :integration, and what libraries generate.
  """
  def library?(module, _metadata) do
    source = module.module_info(:compile)[:source] |> Path.relative_to_cwd() |> to_string()

    String.starts_with?(source, "lib/") and
      inspect(module) =~ ~r/^(AshAgent|Mix)\b/
  end

  def to_ast(text, opts) do
    @links
    |> Enum.reduce(text, fn {link, to}, text -> Regex.replace(link, text, to) end)
    |> ExDoc.Markdown.Earmark.to_ast(opts)
  end
end
