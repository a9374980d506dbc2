//! Checks of summaries: what is not so is found wherever it stands, and what is so is not doubted.

use crate::make::at;
use ash_agent_context_core::{Check, Context, Pin, Stamp, Value};

/// A conversation in which an answer said something, and one turn more.
fn told(text: &str) -> Context {
    let stamp = |micros| Stamp::at(at(micros));
    let filler = "and more of the same. ".repeat(100);
    let context = Context::new("c", Value::text("Go"), Value::Nil, stamp(1)).unwrap();
    let context = context.add_assistant_message(
        Value::text(&format!("{text}\n{filler}")),
        Value::Nil,
        stamp(2),
    );
    let context = context.unwrap();
    context
        .add_user_message(Value::text("Go on"), stamp(3))
        .unwrap()
}

/// What a check of a summary calls wrong.
fn wrong(text: &str, summary: &str) -> Vec<String> {
    let summarized = told(text).summarize_checked(1, 1, summary, Check::Nothing, at(4));
    let wrong = summarized.unwrap().verdict.wrong;
    wrong.iter().map(|words| words.to_string()).collect()
}

#[test]
fn a_changed_digit_is_found_where_nothing_but_its_line_tells() {
    for (text, lie, digit) in [
        ("\"blue\": 39,\n\"cyan\": 37,", "\"blue\": 37", "37"),
        ("index = 0;\nlength > 8", "  index = 8;", "8"),
        ("exit(1)\nstep 2", "\t\tprocess\n\t\texit(2);", "2"),
        (
            "a.ts(235,21): error TS2554: wrong\nb.ts:238",
            "a.ts(238,21): error TS2554: wrong",
            "238",
        ),
        (
            "219: chalk.dim(\"/\") +\n212",
            "212: chalk.dim(\"/\") +",
            "212",
        ),
        (
            "if (key === \"\\x1b[A\") {",
            "if (key === \"\\x8b[A\") {",
            "x8b",
        ),
        (
            "done in WP4: add it. WP0 is open",
            "done in WP0: add it.",
            "WP0",
        ),
    ] {
        assert_eq!(wrong(text, text), [""; 0], "{text}");
        assert_eq!(wrong(text, lie), [digit], "{lie} of {text}");
    }
}

#[test]
fn the_numbers_of_lists_are_the_summarys_own_unless_they_are_quoted() {
    let text = "1. Load the file\n2. Run the tests of main.rs\n3. Check the width of lines\n4. Read 7 files";
    for own in [
        text,
        "3. Check the width of lines",
        "3. Check the width of lines\n4. Read 7 files",
        "1. Check the width of lines\n2. Read 7 files",
        "They did:\n- 1. Read 7 files\n    1. Load the file\n    2. Check the width of lines\n- 2. Run the tests of main.rs",
        "9. They went home",
        "## 1. Width\n\n## 2. Tests",
    ] {
        assert_eq!(wrong(text, own), [""; 0], "{own}");
    }
    assert_eq!(wrong(text, "4. Check the width of lines"), ["4"]);
    assert_eq!(
        wrong(text, "1. Load the file\n3. Run the tests of main.rs"),
        ["3"]
    );
    assert_eq!(wrong(text, "9. Check the width of lines"), ["9"]);
}

#[test]
fn the_same_said_in_other_words_is_not_doubted() {
    let text =
        "Step 2 took 430 ms, total: 3 of 12.\nversion 2 (build 4711) exited with code 1\n\"a\": 5";
    for summary in [
        "After 430 ms, step 2 had found 3.",
        "v2 is build 4711, code 1",
        "Total: 12",
        "Step 1",
        "It is \"b\": 5",
    ] {
        assert_eq!(wrong(text, summary), [""; 0], "{summary}");
    }
}

#[test]
fn facts_are_found_between_letters_that_no_space_divides() {
    let text = "订单12345已确认，共3个文件。See “lib/a.ex”—it’s 4711…";
    assert_eq!(
        wrong(text, "确认了订单12345，有3个。“4711”：lib/a.ex"),
        [""; 0]
    );
    assert_eq!(wrong(text, "订单12346已确认"), ["12346"]);
    assert_eq!(wrong(text, "共3個，“lib/b.ex”"), ["lib/b.ex"]);
}

#[test]
fn a_pinned_line_is_added_to_a_summary_once() {
    let context = told("the booking is QX7R2M\nand more")
        .pin(Pin::Fact("QX7R2M".into()), at(5))
        .unwrap();
    let summary =
        |context: &Context| String::from_utf8_lossy(&context.summary(1).unwrap()).into_owned();
    let summarized = context.summarize(1, 1, "They booked.", at(6)).unwrap();
    let text = "They booked.\nassistant: the booking is QX7R2M";
    assert_eq!(summary(&summarized), text);
    assert_eq!(
        summary(&summarized.put_recall(true, at(7)).put_recall(false, at(8))),
        text
    );
}
