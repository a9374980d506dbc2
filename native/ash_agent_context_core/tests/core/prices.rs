//! What models cost: reckoned in whole numbers, by the price that was valid, as files of prices and providers mean it.

use crate::make::value as read;
use std::fs;
use std::path::Path;

use ash_agent_context_core::{
    read_file, read_list, time, Count, Map, Money, Prices, Report, Term, Time, Unit, Value,
};

fn at(day: i64) -> Time {
    time::from_micros(day * 86_400_000_000).unwrap()
}

fn price(model: Option<&str>, day: Option<i64>, input: i64) -> Value {
    let day = day.map_or(Value::Nil, |day| Value::text(&time::to_text(at(day))));
    let entries = [
        ("model", model.map_or(Value::atom("any"), Value::text)),
        ("valid_from", day),
        ("input", Value::Int(input)),
        ("output", Value::Int(0)),
    ];
    let entries = entries.map(|(key, value)| (Value::atom(key), value));
    Value::Map(Map::new(entries.into()))
}

fn list(prices: Vec<Value>) -> Prices {
    read_list(&Value::List(prices.into())).unwrap()
}

fn found(prices: &Prices, names: [Option<&str>; 2], day: i64) -> Option<u64> {
    let rates = prices.find(None, names, at(day))?;
    rates.rate(Unit::Input, 0)
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
        let prices = self::list(list);
        let names = [Some("m"), None];
        let days = [9, 10, 19, 20, 30].map(|day| found(&prices, names, day));
        assert_eq!(days, [Some(1), Some(10), Some(10), Some(20), Some(20)]);
    }
}

#[test]
fn a_price_that_is_not_valid_yet_is_none() {
    let prices = list(vec![price(Some("m"), Some(10), 1)]);
    assert_eq!(found(&prices, [Some("m"), None], 9), None);
}

#[test]
fn a_name_without_its_date_is_the_same_model_and_no_other_name_is() {
    let prices = list(vec![
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
    let prices = list(vec![
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

/// What a report costs by the only price of a list.
fn cost(price: &str, report: &str) -> Money {
    let prices = list(vec![read(price)]);
    let rates = prices.find(None, [Some("m"), None], at(0)).unwrap();
    let bills = Report::read(&read(report)).unwrap().bills();
    let costs = bills.iter().map(|bill| rates.cost(bill));
    costs.fold(Money::default(), Money::plus)
}

const ALL: &str = r#"{"model":"m","input":1000,"cache_read":100,"cache_write":1250,"cache_write_1h":2000,"output":5000,
    "reasoning":4000,"input_audio":7000,"cache_read_audio":700,"search":9000000,"request":11}"#;

#[test]
fn what_has_a_price_of_its_own_is_taken_out_of_what_it_is_a_part_of() {
    let anthropic = r#"{"input_tokens":10,"cache_read_input_tokens":20,"cache_creation_input_tokens":30,
        "cache_creation":{"ephemeral_5m_input_tokens":25,"ephemeral_1h_input_tokens":5},
        "output_tokens":40,"output_tokens_details":{"thinking_tokens":15},
        "server_tool_use":{"web_search_requests":2}}"#;
    let input = 10 * 1000 + 20 * 100 + 25 * 1250 + 5 * 2000;
    let output = 25 * 5000 + 15 * 4000;
    let fees = 2 * 9_000_000 + 11;
    let expected = Money {
        input,
        output,
        fees,
    };
    assert_eq!(cost(ALL, anthropic), expected);

    let gemini = r#"{"promptTokenCount":100,"cachedContentTokenCount":40,"candidatesTokenCount":5,
        "promptTokensDetails":[{"modality":"TEXT","tokenCount":70},{"modality":"AUDIO","tokenCount":30}],
        "cacheTokensDetails":[{"modality":"AUDIO","tokenCount":10},{"modality":"TEXT","tokenCount":30}]}"#;
    let expected = Money {
        input: 40 * 1000 + 30 * 100 + 20 * 7000 + 10 * 700,
        output: 5 * 5000,
        fees: 11,
    };
    assert_eq!(cost(ALL, gemini), expected);

    let bedrock = r#"{"inputTokens":1,"outputTokens":0,"cacheReadInputTokens":0,"cacheWriteInputTokens":9,
        "cacheDetails":[{"ttl":"5m","inputTokens":6},{"ttl":"1h","inputTokens":3}]}"#;
    let expected = 1000 + 6 * 1250 + 3 * 2000;
    assert_eq!(cost(ALL, bedrock).input, expected);
}

#[test]
fn a_step_prices_the_whole_request() {
    let price = r#"{"model":"m","input":1,"cache_read":1,"output":10,
        "steps":[{"above":100,"input":2,"output":20},{"above":200,"input":3}]}"#;
    let of = |input: u64| {
        let report = format!(r#"{{"prompt_tokens":{input},"completion_tokens":1}}"#);
        let money = cost(price, &report);
        (money.input, money.output)
    };
    assert_eq!(
        [of(100), of(101), of(200), of(201)],
        [(100, 10), (202, 20), (400, 20), (603, 20)]
    );
}

#[test]
fn words_change_the_price_of_tokens_and_of_nothing_else() {
    let price = r#"{"model":"m","input":3,"output":10,"search":100,"factors":{}}"#;
    let Value::Map(map) = read(price) else {
        unreachable!()
    };
    let ratio = |times, through| Value::Tuple(Box::new([Value::Int(times), Value::Int(through)]));
    let words = |word: &str, ratio| Value::Map(Map::new(vec![(Value::text(word), ratio)]));
    let factors = Map::new(vec![
        (Value::atom("service_tier"), words("batch", ratio(1, 2))),
        (Value::atom("inference_geo"), words("us", ratio(11, 10))),
    ]);
    let price = Value::Map(map.put(Value::text("factors"), Value::Map(factors)));
    let prices = list(vec![price]);
    let rates = prices.find(None, [Some("m"), None], at(0)).unwrap();
    let bill = |tier: &str, geo: &str| {
        let report = format!(
            r#"{{"input_tokens":5,"output_tokens":1,"service_tier":"{tier}","inference_geo":"{geo}",
                "server_tool_use":{{"web_search_requests":1}}}}"#
        );
        Report::read(&read(&report)).unwrap().bills().remove(0)
    };
    let of = |tier, geo| {
        let money = rates.cost(&bill(tier, geo));
        (money.input, money.output, money.fees)
    };
    assert_eq!(of("standard", "not_available"), (15, 10, 100));
    assert_eq!(of("batch", ""), (8, 5, 100)); // 7.5 is rounded
    assert_eq!(of("Batch", "us"), (8, 6, 100)); // 8.25 and 5.5
    assert_eq!(of("priority", "eu"), (15, 10, 100));
}

#[test]
fn parts_that_are_billed_apart_cost_what_each_costs() {
    let report = r#"{"input_tokens":7,"output_tokens":2,"service_tier":"batch","iterations":[
        {"type":"compaction","input_tokens":150,"output_tokens":3},
        {"type":"message","input_tokens":7,"output_tokens":2},
        {"type":"advisor_message","model":"big","input_tokens":1,"output_tokens":1}]}"#;
    let report = Report::read(&read(report)).unwrap();
    assert_eq!((report.usage.input, report.usage.output), (7, 2));
    let bills = report.bills();
    let inputs: Vec<_> = bills
        .iter()
        .map(|bill| (bill.usage.input, bill.model.as_deref()))
        .collect();
    assert_eq!(inputs, [(150, None), (7, None), (1, Some("big"))]);
    assert!(bills
        .iter()
        .all(|bill| bill.term(Term::Tier) == Some("batch")));
    // The long part alone is beyond the step.
    let price = r#"{"model":"m","input":1,"output":0,"steps":[{"above":100,"input":10}]}"#;
    let prices = list(vec![read(price)]);
    let rates = prices.find(None, [Some("m"), None], at(0)).unwrap();
    let costs: Vec<u64> = bills.iter().map(|bill| rates.cost(bill).total()).collect();
    assert_eq!(costs, [1500, 7, 1]);
}

#[test]
fn a_plain_report_has_no_bills() {
    for report in [
        r#"{"input_tokens":1,"output_tokens":2,"service_tier":"standard","inference_geo":"not_available",
            "cache_creation":{"ephemeral_1h_input_tokens":0}}"#,
        r#"{"prompt_tokens":1,"completion_tokens":2,"prompt_tokens_details":{"audio_tokens":0}}"#,
        r#"{"promptTokenCount":1,"promptTokensDetails":[{"modality":"TEXT","tokenCount":1}],"trafficType":"ON_DEMAND"}"#,
    ] {
        let report = Report::read(&read(report)).unwrap();
        assert_eq!(report.bills, None, "{report:?}");
        assert_eq!(report.count(Count::WrittenHour), 0);
    }
}

#[test]
fn counts_that_are_too_large_stay_the_largest() {
    let most = i64::MAX;
    let image = format!(r#"{{"modality":"IMAGE","tokenCount":{most}}}"#);
    let report =
        format!(r#"{{"promptTokenCount":1,"promptTokensDetails":[{image},{image},{image}]}}"#);
    let report = Report::read(&read(&report)).unwrap();
    assert_eq!(report.count(Count::InputImage), u64::MAX);
}

#[test]
fn a_provider_has_prices_of_its_own() {
    let of = |provider: Option<&str>, input: i64| {
        let Value::Map(map) = price(Some("m"), None, input) else {
            unreachable!()
        };
        let provider = provider.map_or(Value::Nil, Value::atom);
        Value::Map(map.put(Value::atom("provider"), provider))
    };
    let prices = list(vec![of(None, 10), of(Some("bedrock"), 11)]);
    let found = |provider| {
        let rates = prices.find(provider, [Some("m"), None], at(0)).unwrap();
        rates.rate(Unit::Input, 0)
    };
    assert_eq!(found(Some("bedrock")), Some(11));
    assert_eq!(found(Some("anthropic")), Some(10));
    assert_eq!(found(None), Some(10));
}

#[test]
fn what_is_wrong_in_a_list_is_said_with_its_place() {
    for (wrong, place) in [
        (r#"[{"model":"m","input":1}]"#, "output"),
        (r#"[{"input":1,"output":1}]"#, "model"),
        (r#"[{"model":"m","input":-1,"output":1}]"#, "input"),
        (r#"[{"model":"m","input":1.5,"output":1}]"#, "input"),
        (
            r#"[{"model":"m","input":1,"output":1,"outptu":1}]"#,
            "a key of",
        ),
        (
            r#"[{"model":"m","input":1,"output":1,"steps":[{"input":1}]}]"#,
            "above",
        ),
        (
            r#"[{"model":"m","input":1,"output":1,"steps":[{"above":1,"search":1}]}]"#,
            "search",
        ),
        (
            r#"[{"model":"m","input":1,"output":1,"factors":{"colour":{}}}]"#,
            "service_tier",
        ),
        (
            r#"[{"model":"m","input":1,"output":1,"valid_from":"soon"}]"#,
            "valid_from",
        ),
        (r#"{"model":"m"}"#, "list"),
    ] {
        let error = format!("{:?}", read_list(&read(wrong)).unwrap_err());
        assert!(error.contains(place), "{wrong}: {error}");
    }
}

const FILE: &str = r#"[
    {"id":"one","model_match":{"contains":"claude"},"provider_match":{"or":[{"equals":"anthropic"},{"starts_with":"claude-co"}]},
     "models":[
        {"id":"a","match":{"or":[{"starts_with":"Claude-3"},{"regex":"^claude-[45]"}]},"context_window":200000,
         "prices":{"input_mtok":0.3,"cache_read_mtok":0.0000001,"output_mtok":{"base":15,"tiers":[{"start":200000,"price":22.5}]},
                   "web_searches_kcount":10}},
        {"id":"b","match":{"equals":"claude-x"},"prices":[
            {"prices":{"input_mtok":1}},
            {"constraint":{"start_date":"1970-01-11"},"prices":{"input_mtok":2}}]},
        {"id":"c","match":{"equals":"claude-y"},"prices":[
            {"prices":{"input_mtok":1}},
            {"constraint":{"start_time":"16:30:00Z","end_time":"00:30:00Z"},"prices":{"input_mtok":2}}]},
        {"id":"d","match":{"and":[{"contains":"claude"},{"ends_with":"-pic"}]},"prices":{"output_per_image":1}}]},
    {"id":"two","fallback_model_providers":["one"],"models":[
        {"id":"e","match":{"equals":"claude-x"},"prices":{"input_mtok":7}}]}]"#;

#[test]
fn a_file_of_prices_is_read_and_what_is_not_understood_is_listed() {
    let file = read_file(FILE.as_bytes(), None).unwrap();
    assert_eq!(file.models, 3);
    let texts = |rows: &[[String; 3]]| rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>();
    assert_eq!(
        texts(&file.skipped),
        ["one c end_time, start_time", "one d output_per_image"]
    );
    assert_eq!(texts(&file.rounded), ["one a cache_read_mtok"]);
    assert_eq!(file.sha256.len(), 64);
    let input = |provider, name, day| {
        let rates = file.prices.find(provider, [Some(name), None], at(day))?;
        rates.rate(Unit::Input, 0)
    };
    assert_eq!(input(None, "CLAUDE-3-5-sonnet", 0), Some(300_000));
    assert_eq!(input(Some("claude-code"), "claude-4", 0), Some(300_000));
    assert_eq!(input(None, "claude-x", 9), Some(1_000_000));
    assert_eq!(input(None, "claude-x", 10), Some(2_000_000));
    assert_eq!(input(Some("two"), "claude-x", 10), Some(7_000_000));
    assert_eq!(input(Some("two"), "claude-3", 10), Some(300_000));
    assert_eq!(input(None, "claude-y", 10), None);
    assert_eq!(input(Some("one"), "gpt-4o", 10), None);
    let rates = file
        .prices
        .find(None, [Some("claude-3"), None], at(0))
        .unwrap();
    assert_eq!(rates.rate(Unit::Output, 200_000), Some(15_000_000));
    assert_eq!(rates.rate(Unit::Output, 200_001), Some(22_500_000));
    assert_eq!(rates.rate(Unit::CacheRead, 0), Some(0));
    assert_eq!(rates.rate(Unit::Search, 0), Some(10_000_000_000));
    assert_eq!(rates.context_window, Some(200_000));
    let asked = read_file(FILE.as_bytes(), Some("Two")).unwrap();
    let rates = asked
        .prices
        .find(Some("anthropic"), [Some("claude-x"), None], at(0))
        .unwrap();
    assert_eq!(rates.rate(Unit::Input, 0), Some(7_000_000));
    for wrong in ["", "{}", "[1]", r#"[{"id":"x"}]"#, r#"[{"models":[]}]"#] {
        assert!(read_file(wrong.as_bytes(), None).is_err(), "{wrong}");
    }
}

/// Usages that providers sent, and what the maintainers' own calculator makes of them, at a fixed time.
#[test]
fn recorded_usages_cost_what_the_oracle_says_to_the_last_digit() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/prices");
    let Ok(text) = fs::read(folder.join("usages.json")) else {
        return;
    };
    let prices = fs::read(folder.join("prices.json")).unwrap();
    let prices = read_file(&prices, None).unwrap().prices;
    let now = time::from_value(&Value::text("2026-07-29T12:00:00Z")).unwrap();
    let usages: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let mut compared = 0;
    for row in usages.as_array().unwrap() {
        let body = &row["body"];
        let report = body.get("usage").or_else(|| body.get("usageMetadata"));
        for extracted in row["extracted"].as_array().unwrap() {
            for one in extracted["extractors"].as_array().unwrap() {
                let provider = one["provider_id"].as_str().unwrap();
                let flavor = (provider, one["api_flavor"].as_str().unwrap());
                let known = [
                    ("anthropic", "default"),
                    ("openai", "chat"),
                    ("openai", "responses"),
                    ("google", "default"),
                    ("mistral", "default"),
                ];
                let Some(expected) = one["input_price"]
                    .as_str()
                    .filter(|_| known.contains(&flavor))
                else {
                    continue;
                };
                let model = row["model"].as_str();
                let rates = prices.find(Some(provider), [model, None], now).unwrap();
                let report = Report::read(&read(&report.unwrap().to_string())).unwrap();
                // The oracle knows no parts that are billed apart, and no words.
                let mut bill = report.bills().remove(0);
                bill.usage = report.usage;
                let money = rates.cost(&bill);
                let output = one["output_price"].as_str().unwrap_or("0");
                assert_eq!(money.input, pico(expected), "{body}");
                assert_eq!(money.output, pico(output), "{body}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 567);
}

/// Dollars in 10^-12.
fn pico(dollars: &str) -> u64 {
    let (mantissa, exponent) = dollars.split_once(['E', 'e']).unwrap_or((dollars, "0"));
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let places = 12 + exponent.parse::<i32>().unwrap() - i32::try_from(part.len()).unwrap();
    let digits: u128 = format!("{whole}{part}").parse().unwrap();
    let scaled = match u32::try_from(places) {
        Ok(places) => digits * 10_u128.pow(places),
        Err(_) => {
            let through = 10_u128.pow(places.unsigned_abs());
            assert_eq!(digits % through, 0, "{dollars}");
            digits / through
        }
    };
    u64::try_from(scaled).unwrap()
}
