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

/// Pieces of facts and other forms of them, each with lies within.
#[test]
fn a_piece_of_a_fact_is_known_and_a_lie_in_it_is_found() {
    let text = "open lib/shop/billing/invoice_line.ex:235 at 1f0c29ab44de99817b6a5c3d2e1f00aa11bb22cc\n\
                request 4f9c01d2-77ab-4e10-9c3f-aa12bb34cc56, lines 1204-1377, report.csv has 48,213 bytes\n\
                attempt 3 failed after 7.284 s, load 47.31 %, 1108 lines of https://hexdocs.pm/ash/readme.html";
    for (piece, lies) in [
        (
            "Changed invoice_line.ex",
            &["invoice_lime.ex", "invoice_lines.ex", "nvoice_line.ex"][..],
        ),
        (
            "Changed billing/invoice_line.ex",
            &["billing/invoice_lime.ex", "shop/invoice_line.ex"],
        ),
        ("Files in lib/shop/billing/", &["lib/shap/billing"]),
        ("Now at 1f0c29a", &["1f0c29b", "1f0c28a", "f0c29ab4"]),
        ("Served 4f9c01d2", &["4f9c01d3"]),
        ("Served 77ab-4e10", &["77ab-4e11"]),
        ("It begins at 1204", &["1205"]),
        ("It takes 48 KB", &["46 KB", "1204 KB"]),
        ("It takes 47.1 KiB", &["48.1 KiB"]),
        ("It takes about 48.2kB", &["48.3kB"]),
        ("The 3rd attempt", &["4th attempt", "3rd request"]),
        ("It took 7.3 s", &["7.4 s"]),
        ("Load is 47%", &["46%"]),
        ("It has ~1100 lines", &["~1200 lines"]),
        ("See hexdocs.pm/ash", &["hexdocs.pm/ask2"]),
    ] {
        assert_eq!(wrong(text, piece), [""; 0], "{piece}");
        for lie in lies {
            assert!(
                !wrong(text, &format!("They have {lie}")).is_empty(),
                "{lie}"
            );
        }
    }
}

#[test]
fn a_changed_letter_of_a_short_path_or_of_an_ending_is_found() {
    let text = "changed src/tui/oauth-selector.ts and README.md\nsee /Users/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r.ts\n\
                import from ../modes/interactive/theme.json, call theme.load() on `and/or`";
    for (honest, lies) in [
        (
            "Files are in `src/tui/`.",
            &["`src/tuk/`", "`arc/tui/`", "`src/tuk`", "src/tuk/"][..],
        ),
        ("Look at /modes/interactive/", &["/modes/inzeractive/"]),
        ("It is in /Users/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q", &[]),
        (
            "See b/c/d/e/f/g/h/i/j/k/l/m/n",
            &["b/c/d/e/f/g/h/i/x/k/l/m/n"],
        ),
        (
            "They changed `oauth-selector.ts` and README.md",
            &[
                "oauth-selector.tx",
                "`README.mu`",
                "src/tui/oauth-selector.qs",
            ],
        ),
        ("It reads theme.json", &["theme.jsoq"]),
        // Words of a summary's own are no paths.
        (
            "They call theme.load, theme.save and/or read/write. No ./x, e.g. this",
            &[],
        ),
    ] {
        assert_eq!(wrong(text, honest), [""; 0], "{honest}");
        for lie in lies {
            let found = wrong(text, &format!("They have {lie} now"));
            assert!(!found.is_empty(), "{lie}");
        }
    }
}

#[test]
fn a_summary_grows_by_a_quarter_at_most() {
    let facts: String = (0..200)
        .map(|n| format!("lib/a{n}/file_{n}.ex\n"))
        .collect();
    let summary = "They read files, and then some more of them. ".repeat(9);
    let summarized = told(&facts)
        .summarize_checked(1, 1, &summary, Check::Append, at(4))
        .unwrap();
    assert!(summarized.verdict.appended > 0);
    let text = summarized.context.summary(1).unwrap();
    assert!(
        text.len() * 3 < summary.len() * 4,
        "{} of {}",
        text.len(),
        summary.len()
    );
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
