//! What models cost: reckoned in whole numbers, by the price that was valid.

#![allow(clippy::unwrap_used)]

use ash_agent_context_core::{time, Price, Prices, Rates, Time};

fn at(day: i64) -> Time {
    time::from_micros(day * 86_400_000_000).unwrap()
}

fn price(model: Option<&str>, day: Option<i64>, input: u64) -> Price {
    let rates = Rates {
        input,
        cache_read: 0,
        cache_write: 0,
        output: 0,
    };
    Price {
        model: model.map(Into::into),
        valid_from: day.map(at),
        rates,
    }
}

fn found(prices: &Prices, names: [Option<&str>; 2], day: i64) -> Option<u64> {
    prices.find(names, at(day)).map(|rates| rates.input)
}

#[test]
fn the_newest_valid_price_counts_in_any_order() {
    let list = [
        price(Some("m"), Some(10), 10),
        price(Some("m"), None, 1),
        price(Some("m"), Some(20), 20),
    ];
    for rotation in 0..3 {
        let mut list = list.to_vec();
        list.rotate_left(rotation);
        let prices = Prices::new(list);
        let names = [Some("m"), None];
        let days = [9, 10, 19, 20, 30].map(|day| found(&prices, names, day));
        assert_eq!(days, [Some(1), Some(10), Some(10), Some(20), Some(20)]);
    }
}

#[test]
fn a_price_that_is_not_valid_yet_is_none() {
    let prices = Prices::new(vec![price(Some("m"), Some(10), 1)]);
    assert_eq!(found(&prices, [Some("m"), None], 9), None);
}

#[test]
fn a_name_without_its_date_is_the_same_model_and_no_other_name_is() {
    let prices = Prices::new(vec![
        price(Some("gpt-4o"), None, 1),
        price(None, Some(5), 9),
    ]);
    for name in [
        "gpt-4o",
        "gpt-4o-2024-08-06",
        "gpt-4o-20240806",
        "gpt-4o@20240806",
    ] {
        assert_eq!(found(&prices, [Some(name), None], 0), Some(1), "{name}");
    }
    for name in [
        "gpt-4o-mini",
        "gpt-4o-2024-08",
        "gpt-4",
        "-2024-08-06",
        "",
        "é-2024-08-0é",
    ] {
        assert_eq!(found(&prices, [Some(name), None], 0), None, "{name}");
        assert_eq!(found(&prices, [Some(name), None], 5), Some(9), "{name}");
    }
}

#[test]
fn what_answers_comes_before_what_was_asked_and_that_before_all_models() {
    let prices = Prices::new(vec![
        price(Some("named"), None, 1),
        price(Some("asked"), None, 2),
        price(None, None, 3),
    ]);
    let cases = [
        ([Some("named"), Some("asked")], 1),
        ([Some("other"), Some("asked")], 2),
        ([None, Some("asked")], 2),
        ([Some("other"), Some("another")], 3),
        ([None, None], 3),
    ];
    for (names, expected) in cases {
        assert_eq!(found(&prices, names, 0), Some(expected), "{names:?}");
    }
}
