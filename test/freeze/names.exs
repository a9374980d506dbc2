# What functions and modules of AshAgent are called now, by what they were called when the digests were first written, such as
# "Context.hide_iterations" => "Context.View.hide_iterations" or "Prices" => "Context.Prices". The code of this folder knows the old
# names alone, so it also runs with an older build, which has them.
#
# The functions of AshAgent.Context are in the table of guides/upgrading.md, from which `mix ash_agent.rename` has them: one that takes other
# arguments now is that task and the old name.
alias Mix.Tasks.AshAgent.Rename

moved = %{}

if Code.ensure_loaded?(Rename) do
  for {old, new} <- Rename.moved(), into: moved do
    {"Context.#{old}", if(new.same?, do: "Context.#{new.module}#{new.as}", else: {Rename, old})}
  end
else
  moved
end
