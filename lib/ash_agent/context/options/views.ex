defmodule AshAgent.Context.Options.Views do
  @moduledoc false

  # The options of functions that change the view of a conversation, or look for texts that it hides.

  import AshAgent.Context.Options.Kinds

  alias AshAgent.Context.Options.Kinds

  @doc "The method of counting tokens."
  def method(default) do
    {:method, {:in, [:auto, :estimate, :o200k_base, :cl100k_base]}, [default: default],
     "how to count tokens, see `t:AshAgent.Context.Tokens.token_method/0`."}
  end

  def schemas do
    keep = [
      {:keep_first, :non_neg_integer, [default: 0], "how many iterations at the beginning stay."},
      {:keep_last, :non_neg_integer, [default: 1], "how many iterations at the end stay."}
    ]

    results = {:keep, :non_neg_integer, [default: 3], "how many of the last results stay."}

    [
      fit:
        [
          {:reserve, :non_neg_integer, [default: 0],
           "tokens of the budget to keep free for the answer."}
        ] ++
          keep ++
          [
            {:step, :pos_integer, [default: 5],
             "hides up to a multiple of this number of iterations where possible. That hides more than is needed, and then " <>
               "nothing for some turns, during which providers' prompt caches hit."},
            method(:auto),
            {:at, at()}
          ],
      compact:
        [
          {:range, range(&Kinds.range?/1),
           "the iterations to compact. Defaults to all before the current turn."}
        ] ++
          keep ++
          [
            {:check, {:in, [:append, :refuse, :hide, nil]}, [default: :append],
             """
             what to do about a summary that misses facts or says what is not so, see below:
               * `:append` adds what it misses, at most a tenth of what it replaces, and names what it made up
               * `:refuse` clears the range's results instead
               * `:hide` hides the range instead
               * `nil` uses it as it is, if it is shorter than what it replaces
             """},
            {:at, at()}
          ],
      clear_tool_results: [
        results,
        {:placeholder, {:custom, &Kinds.words?/1},
         [type_doc: "a UTF-8 string that is not blank", default: "[Old tool result cleared]"],
         "what models read instead."},
        {:by_policy, :boolean, [default: false],
         "whether a policy chose it. `AshAgent.Context.Audit.account/2` then has the verdict `:cleared`, and counts it as no mistake."},
        {:at, at()}
      ],
      clear_when_due: [
        results,
        {:share, {:custom, &Kinds.share?/1},
         [type_doc: "a number from 0 to 10, or `nil`", default: nil],
         "the share of the price of clearing that results have to cost before they are cleared. With 0 they are cleared at once. " <>
           "By default, the first clearing waits for the whole price, and later ones for half of it at most, see " <>
           "`AshAgent.Context.Rent`."},
        {:prices,
         prices(
           "what models cost, see `AshAgent.Prices`. Without a price of the model, a token that is read from the cache costs " <>
             "0.1 and one that is written 1.25 times as much as another one."
         )},
        {:model, asked_model()},
        {:window, positive(),
         "tokens that a request may have before results are cleared in any case. Defaults to as many as leave room for the " <>
           "answer in the `:context_window` of the model's price, if it has one, see `AshAgent.Context.Shortening.shorten/3`."},
        {:at, at()}
      ],
      shorten: [
        {:keep, :non_neg_integer, [default: 3],
         "how many of the last results the first step leaves."},
        {:prices, prices("prices with a `:context_window`, see `AshAgent.Prices`.")},
        {:model, asked_model()},
        {:window, positive(),
         "tokens that a request may have, for the cause `:window`. Defaults to the `:context_window` of the model's price, without " <>
           "the tokens that the noted request (`AshAgent.Context.Audit.put_request/4`) lets the answer have, or without 8,192, at most a quarter of the " <>
           "window, where it says nothing. Without either, each request fits."},
        {:summarize, {:or, [{:fun, 1}, nil]}, [type_doc: "a function of arity 1"],
         "makes a summary of messages for the last step, as in `AshAgent.Context.View.compact/3`. Defaults to no such step."},
        {:at, at()}
      ],
      recall: [
        {:from, :pos_integer, [default: 1], "the first line."},
        {:lines, positive(), "how many lines. Defaults to all that `:max_bytes` has room for."},
        {:pattern, {:or, [:string, nil]}, [type_doc: "a regular expression as a string"],
         "returns only lines that match, each with its number. The syntax is that of `AshAgent.Context.View.put_masks/3`."},
        {:max_bytes, :pos_integer, [default: 8_000], "how long the text may be."}
      ],
      put_recall: [
        {:index, {:custom, &Kinds.index?/1}, [type_doc: "a number from 0 to 0.1"],
         "the share of the tokens of hidden iterations that an index of their facts may have, such as `0.03`. `0` turns it " <>
           "off, as it is by default."},
        {:user_bytes, {:or, [:non_neg_integer, nil]}, [type_doc: "a non-negative integer"],
         "how much of the user's words in hidden iterations is quoted, at most an eighth of what is hidden. 2,000 by default."},
        {:at, at()}
      ],
      receipt: [
        {:iteration, {:or, [:pos_integer, nil]}, [type_doc: "the number of an iteration"],
         "returns the receipt of the request that was made for it instead of the view as it is."},
        {:limit, :non_neg_integer, [default: 20], "how many facts to return."}
      ],
      search: [limit: [type: :pos_integer, default: 5, doc: "how many hits to return."]]
    ]
  end

  defp prices(doc), do: Keyword.put(AshAgent.Prices.schema()[:prices], :doc, doc)
end
