//! Reads the counts with a price of their own from providers' reports, and the parts of an answer that are billed apart.

use std::collections::HashSet;
use std::sync::LazyLock;

use crate::log::provider::Provider;
use crate::prices::bill::{Bill, Count, Report, Term};
use crate::prices::usage::Usage;
use crate::provider::figures::{Billed, Figures};
use crate::provider::room;
use crate::value::{Map, Value};

/// The most parts of an answer to read; real ones have a few.
const PARTS: usize = 100;

/// The keys of any provider's report with counts, words or parts that change the price.
static NAMES: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    let mut names = HashSet::new();
    for figures in all() {
        names.extend(figures.billed.iter().flat_map(|billed| billed.under));
        names.extend(figures.terms.iter().map(|(name, _)| *name));
        names.extend(figures.parts);
    }
    names
});

fn all() -> impl Iterator<Item = &'static Figures> {
    Provider::ALL.into_iter().map(|of| room(of).figures())
}

/// Returns whether the value under this key of a report may be billed by itself.
pub(crate) fn is_billed(name: &str) -> bool {
    NAMES.contains(name)
}

/// Reads the rest of a report whose tokens are known.
pub(crate) fn read(usage: Usage, report: &Value) -> Report {
    let Some(report) = report.as_map() else {
        return usage.into();
    };
    let names = all().flat_map(|figures| figures.parts);
    let lists = names.filter_map(|name| report.get_named(name)?.as_list());
    let parts = lists.flatten().take(PARTS);
    let mut parts: Vec<Bill> = parts.filter_map(read_part).collect();
    let whole = read_bill(usage, report);
    if parts.is_empty() {
        return Report::new(usage, vec![whole]);
    }
    // The answer's tier applies to its parts; only searches are billed separately.
    for of in Term::ALL {
        let missing = parts.iter_mut().filter(|part| part.term(of).is_none());
        missing.for_each(|part| part.put_term(of, whole.term(of).unwrap_or_default()));
    }
    if let Some(last) = parts.last_mut() {
        last.add(Count::Searches, whole.count(Count::Searches));
    }
    Report::new(usage, parts)
}

/// Reads a part, which has the keys of a report.
fn read_part(part: &Value) -> Option<Bill> {
    let map = part.as_map()?;
    let usage = Report::read(part).ok()?.usage;
    let mut bill = read_bill(usage, map);
    if let Some(model) = map.get_named("model").and_then(Value::as_str) {
        bill.put_model(model);
    }
    Some(bill)
}

fn read_bill(usage: Usage, report: &Map) -> Bill {
    let mut bill = Bill::plain(usage);
    for figures in all() {
        for billed in figures.billed {
            let names = billed.under.iter();
            let numbers = names.filter_map(|name| Some(number(billed, report.get_named(name)?)));
            bill.add(billed.count, numbers.fold(0, u64::saturating_add));
        }
        for (name, term) in figures.terms {
            if let Some(word) = report.get_named(name).and_then(Value::as_name) {
                bill.put_term(*term, word);
            }
        }
    }
    bill
}

fn number(billed: &Billed, given: &Value) -> u64 {
    let count = |map: &Map| {
        let numbers = billed.number.iter().filter_map(|key| map.get_named(key));
        let mut numbers = numbers.filter_map(Value::as_count);
        numbers.next().unwrap_or(0)
    };
    match (given, billed.of) {
        (Value::Map(map), None) => count(map),
        (Value::List(items), Some((key, word))) => {
            let maps = items.iter().filter_map(Value::as_map);
            let is_meant = |map: &&Map| map.get_named(key).and_then(Value::as_name) == Some(word);
            maps.filter(is_meant).map(count).sum()
        }
        _ => 0,
    }
}
