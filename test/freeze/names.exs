# What functions and modules of AshAgent are called now, by what they were called when the digests were first written, such as
# "Context.hide_iterations" => "Context.View.hide_iterations" or "Prices" => "Context.Prices". The code of this folder knows the old
# names alone, so it also runs with an older build, which has them.
%{}
