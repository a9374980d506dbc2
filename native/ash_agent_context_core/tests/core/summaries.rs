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
fn what_is_put_together_from_the_text_is_known_and_a_lie_in_it_is_found() {
    let text = "WP14 is next, then WP16 and at last WP20. Listeners outlive reset(), compact() and switchSession().\n\
                It is in packages/shop/src and calls src/cli_new.ts; 4. Thinking level next\n\
                Let us write main.ts instead of changing other.ts, and keep cart.ts for now.";
    for (said, is_wrong) in [
        ("## Next: WP14-WP20", false),
        ("## Next: WP16-WP20 and the rest", false),
        ("## Next: WP14-WP21", true),
        ("## Next: WP20-WP14", true),
        ("## Next: XP14-WP20", true),
        ("They survive reset/compact/switchSession here", false),
        ("They survive reset/contact/switchSession here", true),
        ("Run packages/shop/src/cli_new.ts now", false),
        ("Run packages/shop/src/cli_old.ts now", true),
        ("Run packages/stop/src/cli_new.ts now", true),
        // A few words on one side stand beside other things, too.
        ("| WP16 | Thinking level and more |", false),
        (
            "New files (main.ts, cart.ts) instead of changing those",
            false,
        ),
    ] {
        let wrong = wrong(text, said);
        assert_eq!(!wrong.is_empty(), is_wrong, "{said}: {wrong:?}");
    }
}

#[test]
fn a_size_in_units_of_1024_is_known_beside_its_name_or_with_a_decimal() {
    let text = "report.csv has 48,213 bytes, photo.png has 60,500 bytes\n-rw-r--r-- 1 me me 91K Nov 26 log.txt\n\
                a cache of 12 KiB, the limit is 3 MB";
    for (honest, lies) in [
        ("It takes 48 KB", &["47 KB", "059 KB"][..]),
        ("report.csv takes 47 KB", &["log.txt takes 47 KB"]),
        (
            "It takes 47.1 KB, the other one 59.08 kB",
            &["48.2 KiB", "47.2 KB"],
        ),
        ("It takes 47 KiB, or 47K", &["46 KiB", "46K", "48 KiB"]),
        ("It takes 91 KB, 91K, 91 KiB", &["90 KB", "92K"]),
        ("It takes 12 KB, 12 KiB", &["13 KB", "11 KiB"]),
        ("At most 3 MB", &["2 MB"]),
    ] {
        assert_eq!(wrong(text, honest), [""; 0], "{honest}");
        for lie in lies {
            let found = wrong(text, &format!("They have {lie} now"));
            assert!(!found.is_empty(), "{lie}");
        }
    }
}

#[test]
fn a_date_does_not_prove_what_an_ordinal_counts() {
    let text = "Attempt 3 failed, attempt 4 of May 24th too. Arrives on May 11th and 12th, with 2 bags from JFK.\n\
                The 5th parameter is a flag, the 7 flights of 2024 have 9 stops";
    for honest in [
        "The 3rd attempt and the 4th attempt failed",
        "It was May 24th, the 11th and the 12th.",
        "On the 24th with bags, or the 24th from JFK",
        "So the 11th has stops",
        "Since May 24th bags went; the 24th, bags",
        "The 24th day, the 11th hour",
        "The 5th parameter",
        "5th parameter",
    ] {
        assert_eq!(wrong(text, honest), [""; 0], "{honest}");
    }
    for lie in [
        "The 24th attempt failed",
        "The 11th attempt",
        "the 5th attempt",
        "12th parameter",
        "the 12th stops",
        "the 4th parameter of May",
    ] {
        assert!(!wrong(text, lie).is_empty(), "{lie}");
    }
}

/// A random number below another, of a linear generator.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn hex(&mut self, len: u64) -> String {
        let digits = (0..len).map(|_| format!("{:x}", self.below(16)));
        digits.collect()
    }

    /// Changes a digit or a small letter into another of its kind.
    fn change(&mut self, text: &str, is_hex: bool) -> String {
        let mut bytes = text.as_bytes().to_vec();
        loop {
            let at = self.below(bytes.len() as u64) as usize;
            let letters = if is_hex {
                &b"0123456789abcdef"[..]
            } else {
                b"abcdefghijklmnopqrstuvwxyz"
            };
            let letters = match bytes[at] {
                b'0'..=b'9' if !is_hex => &b"0123456789"[..],
                byte if letters.contains(&byte) => letters,
                _ => continue,
            };
            let other = letters[self.below(letters.len() as u64) as usize];
            if other != bytes[at] {
                bytes[at] = other;
                return String::from_utf8(bytes).unwrap();
            }
        }
    }
}

/// A fact of a conversation, how a summary says it, and a lie of the same form.
type Said = (&'static str, String, String);

fn ordinal(number: u64) -> String {
    let ending = match (number % 100, number % 10) {
        (11..=13, _) | (_, 0 | 4..=9) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        _ => "rd",
    };
    format!("{number}{ending}")
}

/// Measures the check: of 1,000 lies of each kind 990 are found, and of 50 summaries that say parts of what is there two
/// are doubted at most. The conversation has other numbers as well, dates among them, that a lie may hit.
#[test]
fn lies_are_told_from_pieces() {
    let random = &mut Random(7);
    let mut log = String::from(
        "We fly on May 24th and May 11th, back on June 2nd, with 3 bags for $1,204 in 2024.\n",
    );
    let (mut hashes, mut uuids, mut ranges) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sizes, mut attempts, mut paths) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..30 {
        hashes.push(random.hex(40));
        uuids.push([8, 4, 4, 4, 12].map(|len| random.hex(len)).join("-"));
        let from = 100 + random.below(4_000);
        ranges.push((from, from + 10 + random.below(300)));
        sizes.push(1_000 + random.below(900_000));
        attempts.push(2 + random.below(60));
        let name = ["alpha", "beta", "gamma", "delta"][number % 4];
        paths.push(format!("lib/{name}/part_{number}/{name}_view.ex"));
        let (from, to) = ranges[number];
        log += &format!(
            "commit {}\nrequest {} done\nsee lines {from}-{to} of {}\n{name}{number}.bin has {} bytes\n\
             attempt {} of worker{number} failed\n",
            hashes[number], uuids[number], paths[number], sizes[number], attempts[number]
        );
    }
    let context = told(&log);
    let wrong = |text: &str| {
        let checked = context.summarize_checked(1, 1, text, Check::Nothing, at(4));
        checked.unwrap().verdict.wrong
    };
    // A check reads the whole log, and names 20 facts at most: so many lines are checked at once.
    let count_wrong = |lines: &[String]| {
        let found = lines.chunks(10).map(|lines| {
            let wrong = wrong(&lines.join("\n"));
            assert!(wrong.len() < 20, "{wrong:?}");
            let is_wrong = |line: &&String| wrong.iter().any(|words| line.contains(&**words));
            lines.iter().filter(is_wrong).count()
        });
        found.sum::<usize>()
    };
    let kilobytes = |size: u64| match size {
        10_000.. => format!("{:.0}", size as f64 / 1e3),
        _ => format!("{:.1}", size as f64 / 1e3),
    };
    let mut say = |kind: usize| -> Said {
        let at = random.below(30) as usize;
        let known = |text: &str| log.contains(text);
        loop {
            let path: Vec<&str> = paths[at].split('/').collect();
            let (before, honest, is_hex, after) = match kind {
                0 => ("They changed `", path[3].to_owned(), false, "` first."),
                1 => ("They read ", path[2..].join("/"), false, " and went on."),
                2 => ("Files are in `", path[..3].join("/"), false, "/`."),
                3 => {
                    let len = 7 + random.below(5) as usize;
                    ("It is at ", hashes[at][..len].to_owned(), true, " now.")
                }
                4 => {
                    let len = [8, 13][random.below(2) as usize];
                    (
                        "Request ",
                        uuids[at][..len].to_owned(),
                        true,
                        " was served.",
                    )
                }
                5 => (
                    "It begins near line ",
                    ranges[at].0.to_string(),
                    false,
                    " there.",
                ),
                6 => (
                    "The largest takes about ",
                    kilobytes(sizes[at]),
                    false,
                    " KB.",
                ),
                _ => {
                    let lie = attempts[at] + 1 + random.below(7);
                    if attempts.contains(&lie) {
                        return ("", String::new(), String::new());
                    }
                    let said = |number| format!("The {} attempt failed.", ordinal(number));
                    return ("ordinal", said(attempts[at]), said(lie));
                }
            };
            let lie = random.change(&honest, is_hex);
            let is_true = match kind {
                6 => lie.starts_with('0') || sizes.iter().any(|size| kilobytes(*size) == lie),
                _ => known(&lie),
            };
            if !is_true {
                let kinds = ["file", "tail", "folder", "hash", "uuid", "range", "size"];
                let said = |text: &str| format!("{before}{text}{after}");
                return (kinds[kind], said(&honest), said(&lie));
            }
        }
    };
    for kind in 0..8 {
        let said = std::iter::repeat_with(|| say(kind)).filter(|said| !said.0.is_empty());
        let (honest, lies): (Vec<_>, Vec<_>) =
            said.take(1_000).map(|said| (said.1, said.2)).unzip();
        let (found, doubted) = (count_wrong(&lies), count_wrong(&honest[..100]));
        let kind = [
            "file", "tail", "folder", "hash", "uuid", "range", "size", "ordinal",
        ][kind];
        let told = format!("{kind}: {found} of 1000 lies found, {doubted} of 100 pieces doubted");
        println!("{told}");
        assert!(found >= 990 && doubted <= 2, "{told}");
    }
    let honest = (0..50).map(|_| {
        let said = (0..8).map(|kind| say(kind).1);
        said.collect::<Vec<_>>().join("\n")
    });
    let doubted = honest.filter(|text| !wrong(text).is_empty()).count();
    assert!(doubted <= 2, "{doubted} of 50 honest summaries doubted");
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
