//! The NIFs that read what the view does not show.

use ash_agent_context_core::{Excerpt, Hit};
use rustler::{Encoder as _, NifMap};

use crate::argument::{At, Of, Unsigned};
use crate::atoms;
use crate::encode::{Encoder, FieldTerms};
use crate::nif::{change, nif};
use crate::resource::ContextHandle;

change!(
    context_put_recall_normal,
    context_put_recall_dirty,
    |context, recall: bool, at: At| (
        context.recall_cost().plus(context.masks_cost()),
        context.put_recall(recall, at)
    )
);

nif!(
    context_has_recall_normal,
    context_has_recall_dirty,
    |env, _scheduler, context: ContextHandle| Ok(context.get().has_recall().encode(env))
);

/// Which piece of a text, see `AshAgent.Context.Recall.recall/3`.
#[derive(NifMap)]
#[rustler(decode)]
struct ExcerptOptions<'a> {
    from: Unsigned,
    lines: Option<Unsigned>,
    pattern: Option<&'a str>,
    max_bytes: Unsigned,
}

nif!(
    context_recall_normal,
    context_recall_dirty,
    |env,
     scheduler,
     context: ContextHandle,
     handle: Of<'a, &'a str>,
     asked: Of<'a, ExcerptOptions<'a>>| {
        scheduler.allow(context.get().recall_cost())?;
        let excerpt = Excerpt {
            from: asked.from.size(),
            lines: asked.lines.map_or(usize::MAX, |lines| lines.size()),
            pattern: asked.pattern,
            most: asked.max_bytes.size(),
        };
        let text = context.get().recall(handle, &excerpt)?;
        Ok(Encoder::new_copying(env).text(&text))
    }
);

// `[%{handle:, text:, score:}]`
nif!(
    context_search_normal,
    context_search_dirty,
    |env, scheduler, context: ContextHandle, words: Of<'a, &'a str>, most: Unsigned| {
        scheduler.allow(context.get().recall_cost())?;
        let hits = context.get().search(words, Unsigned(most).size());
        let hit = |hit: Hit| {
            let mut fields = FieldTerms::new(env);
            fields.put(atoms::handle(), hit.handle.to_string().encode(env));
            fields.put(atoms::text(), hit.text.encode(env));
            fields.put(atoms::score(), hit.score.encode(env));
            fields.end()
        };
        Ok(hits.into_iter().map(hit).collect::<Vec<_>>().encode(env))
    }
);
