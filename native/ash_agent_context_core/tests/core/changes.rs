//! What is kept of one state and the changes to another one are that other one, whichever way they came from each other.

use std::collections::BTreeMap;

use ash_agent_context_core::{json, time, Context, Stamp, Value};

/// Numbers without chance, so that a failure is there again.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

fn change(context: &Context, numbers: &mut Numbers) -> Context {
    let stamp = Stamp::at(time::from_micros(0).unwrap());
    let at = stamp.at;
    let text = Value::text(["a", "b"][numbers.below(2)]);
    let last = context.current_iteration();
    let any = i64::try_from(1 + numbers.below(usize::try_from(last).unwrap())).unwrap();
    let changed = match numbers.below(12) {
        0..=4 => context.add_user_message(text, stamp),
        5..=7 => context.add_assistant_message(text, Value::Nil, stamp),
        8 => context.put_iteration_metadata(any, Value::text("note"), text, at),
        9 => context.rewind(any),
        10 => {
            let usage = json::read(br#"{"input_tokens": 1, "output_tokens": 1}"#, 3).unwrap();
            context.add_token_usage(usage, at)
        }
        _ => Ok(context.put_metadata(Value::text("note"), text, at)),
    };
    changed.unwrap_or_else(|_| context.clone())
}

fn kept(context: &Context) -> BTreeMap<u64, Vec<u8>> {
    context.changes(None).iterations.into_iter().collect()
}

#[test]
fn changes_of_any_two_states_bring_the_one_to_the_other() {
    let mut numbers = Numbers(7);
    for _ in 0..8 {
        let stamp = Stamp::at(time::from_micros(0).unwrap());
        let first = Context::new("c", Value::text("hi"), Value::Nil, stamp).unwrap();
        let mut states = vec![first];
        for _ in 0..60 {
            let from = match numbers.below(10) {
                0 => numbers.below(states.len()),
                _ => states.len() - 1,
            };
            let next = change(&states[from], &mut numbers);
            for _ in 0..4 {
                let base = &states[numbers.below(states.len())];
                check(&next, base);
                check(base, &next);
            }
            states.push(next);
        }
    }
}

fn check(context: &Context, base: &Context) {
    let (own, before) = (kept(context), kept(base));
    let changes = context.changes(Some(base));
    assert_eq!(
        changes.head.is_some(),
        context.changes(None).head != base.changes(None).head
    );
    // No iteration is written that is kept already.
    for (number, text) in &changes.iterations {
        assert_ne!(before.get(number), Some(text));
    }
    let mut brought = before;
    brought.extend(changes.iterations);
    brought.retain(|number, _| *number <= context.current_iteration());
    assert_eq!(brought, own);

    let from = context.changes_from(base);
    let first = from.first().unwrap().0;
    assert_eq!(
        from,
        own.clone()
            .into_iter()
            .filter(|(number, _)| *number >= first)
            .collect::<Vec<_>>()
    );
    let mut brought = kept(base);
    brought.retain(|number, _| *number < first);
    brought.extend(from);
    assert_eq!(brought, own);
}
