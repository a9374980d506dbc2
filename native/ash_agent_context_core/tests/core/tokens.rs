//! The tokens of texts, images and files, by what they are and not by what they say.

use ash_agent_context_core::{time, Context, Map, Method, Stamp, Tokens, Value};
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use proptest::prelude::*;

/// The tokens of an image that is large, or whose size is not known, and those of a page.
const IMAGE: u64 = 1_600;
const PAGE: u64 = 2_250;

/// The bytes that are decoded at once.
const BLOCK: usize = 256 * 1024 / 4 * 3;

/// A text, and its tokens in o200k_base and cl100k_base, as tiktoken counts them.
const COUNTS: [(&str, u64, u64); 21] = [
    ("", 0, 0),
    ("a", 1, 1),
    ("Hello, world!", 4, 4),
    ("  indented\n\n\tlines \n", 6, 6),
    ("It's we'll I'D they've", 5, 8),
    ("camelCaseName SCREAMING_CASE", 7, 7),
    ("1234567 3.14159 1,000", 12, 12),
    ("naïve café Füße", 6, 7),
    ("привет, мир", 4, 7),
    ("你好，世界", 3, 6),
    ("こんにちは世界", 2, 4),
    ("नमस\u{94d}त\u{947} द\u{941}निया", 5, 13),
    ("مرحبا بالعالم", 4, 10),
    ("👩\u{200d}👩\u{200d}👧\u{200d}👦 🎉", 13, 21),
    ("<|endoftext|><|im_start|>", 12, 12),
    ("x = [1, 2]; // ok\r\n", 11, 11),
    ("a\u{a0}\u{2003} b", 4, 5),
    ("e\u{301}\u{301} z\u{200d}z", 6, 7),
    ("====----====\n====", 4, 4),
    ("ǅ ʰ Ⅷ ½", 10, 10),
    ("ZGVjb2RlIG1lIHBsZWFzZQ==", 17, 18),
];

/// Each text with the percentage by which its estimate may be off.
const SAMPLES: [(&str, u64); 16] = [
    (
        "The committee met again on Thursday to discuss the new schedule. Most members agreed that \
         the library should open earlier, although nobody could say who would pay for the heating. \
         After an hour of polite argument, they decided to ask the visitors themselves.",
        15,
    ),
    (
        "# Release notes\n\n- **Faster start**: the cache is read only once (see `load/2`).\n\
         - Fixed: `mix deps.get` no longer prints a warning on Windows.\n\n## Upgrading\n\n\
         1. Stop the old server.\n2. Run `bin/migrate --all`.\n3. Start it again.\n",
        20,
    ),
    (
        "pub fn total(items: &[Item]) -> Result<u64, PriceError> {\n    let mut sum = 0_u64;\n    \
         for item in items {\n        let price = item.price().ok_or(PriceError::Missing)?;\n        \
         sum = sum.checked_add(price * item.count).ok_or(PriceError::Overflow)?;\n    }\n    \
         Ok(sum)\n}\n",
        20,
    ),
    (
        "class UserRepository:\n    def __init__(self, session):\n        self.session = session\n\n    \
         def find_by_email(self, email):\n        query = self.session.query(User)\n        \
         return query.filter(User.email == email).one_or_none()\n",
        20,
    ),
    (
        "{\"reservation_id\": \"QX7R2M\", \"passengers\": [{\"first_name\": \"Ada\", \"last_name\": \
         \"Byron\", \"dob\": \"1985-12-10\"}], \"flights\": [{\"number\": \"LX318\", \"price\": 214, \
         \"status\": \"available\"}], \"total_baggages\": 2, \"insurance\": \"no\"}",
        20,
    ),
    (
        "2024-10-07T09:14:22.518Z INFO  [worker-3] request_id=7f3a91 GET /api/v1/orders 200 in 41ms\n\
         2024-10-07T09:14:23.002Z WARN  [worker-1] request_id=0c44be POST /api/v1/login 401 in 8ms\n",
        20,
    ),
    (
        "6f1c2a9e-8b34-4d57-9e0a-51c7f2d8b630\n0b9d7e42-13fa-4c68-a5d1-e97c3042fb8d\n\
         d41b60c3-72e9-4f1a-8c5d-3e8a9f07b216\n",
        15,
    ),
    (
        "pT9xKc2LwQm7VbRz4HsYd1NfGa8JuEo5XiWk3ZtCy6BlMrPqDvSnAh0gUeOjFx+7TbLwKz9RcQmY2HsVd4NfGpa1Ju\
         8EoXi5WkZt3CyBl6MrPDqvSnhA0gUeO",
        25,
    ),
    (
        "Der Ausschuss hat am Donnerstag wieder über den neuen Fahrplan beraten. Die meisten Mitglieder \
         waren dafür, dass die Züge früher fahren, aber niemand wusste, wer das bezahlen würde.",
        25,
    ),
    (
        "Le comité s'est réuni jeudi pour parler du nouveau calendrier. La plupart des membres étaient \
         d'accord pour ouvrir plus tôt, mais personne ne savait qui paierait le chauffage.",
        25,
    ),
    (
        "Комитет снова собрался в четверг, чтобы обсудить новое расписание. Большинство участников \
         согласились открывать библиотеку раньше, но никто не знал, кто заплатит за отопление.",
        35,
    ),
    (
        "委员会星期四再次开会讨论新的时间表。大多数成员同意图书馆应该早点开门，但是没有人知道谁来支付暖气费。",
        35,
    ),
    (
        "委員会は木曜日に新しい予定について話し合いました。多くの人は図書館を早く開けることに賛成しましたが、\
         暖房の費用を誰が払うのかは分かりませんでした。",
        30,
    ),
    (
        "समिति ने गुरुवार को नए कार्यक्रम पर फिर से चर्चा की। अधिकतर सदस्य सहमत थे कि पुस्तकालय पहले खुलना चाहिए, \
         लेकिन कोई नहीं जानता था कि पैसे कौन देगा।",
        35,
    ),
    (
        "thanks, the build is green 🎉 see you tomorrow 😀 great work 👍 the demo went well 🔥 let us ship it 🚀",
        25,
    ),
    (
        "id,city,temperature,humidity\n1,Oslo,-3.5,81\n2,Lima,19.25,77\n3,Cairo,31.0,24\n\
         4,Hanoi,27.75,88\n5,Quito,14.5,69\n",
        20,
    ),
];

fn tokens(content: Value, method: Method) -> Tokens {
    let stamp = Stamp::at(time::from_micros(0).unwrap());
    let context = Context::new("c", content, Value::Nil, stamp).unwrap();
    context.tokens(method)
}

/// Returns the tokens of a text, without those around its message.
fn count(method: Method, text: &[u8]) -> u64 {
    tokens(Value::Binary(text.into()), method).user - 4
}

fn media(fields: &[(&str, &str)]) -> u64 {
    let fields = fields.iter().map(|(key, text)| match *key {
        "type" => (Value::atom(key), Value::atom(text)),
        _ => (Value::atom(key), Value::text(text)),
    });
    let part = Value::Map(Map::new(fields.collect()));
    tokens(Value::List(Box::new([part])), Method::Estimate).media
}

fn image(bytes: &[u8]) -> u64 {
    let data = STANDARD.encode(bytes);
    media(&[
        ("type", "image"),
        ("media_type", "image/png"),
        ("data", &data),
    ])
}

fn file(media_type: &str, name: &str, bytes: &[u8]) -> u64 {
    let data = STANDARD.encode(bytes);
    media(&[
        ("type", "file"),
        ("media_type", media_type),
        ("filename", name),
        ("data", &data),
    ])
}

fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
    bytes.extend(width.to_be_bytes());
    bytes.extend(height.to_be_bytes());
    bytes.extend([8, 6, 0, 0, 0]);
    bytes
}

/// Returns a header with `before` bytes of an application's data before the size.
fn jpeg(width: u16, height: u16, before: usize) -> Vec<u8> {
    let mut bytes = vec![0xff, 0xd8];
    for _ in 0..before.div_ceil(60_000) {
        bytes.extend([0xff, 0xe1]);
        bytes.extend(60_002_u16.to_be_bytes());
        bytes.extend([0; 60_000]);
    }
    bytes.extend([0xff, 0xc0, 0, 17, 8]);
    bytes.extend(height.to_be_bytes());
    bytes.extend(width.to_be_bytes());
    bytes.extend([3, 1, 0x11, 0, 2, 0x11, 1, 3, 0x11, 1]);
    bytes
}

fn gif(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = b"GIF89a".to_vec();
    bytes.extend(width.to_le_bytes());
    bytes.extend(height.to_le_bytes());
    bytes.extend([0; 3]);
    bytes
}

fn webp(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a".to_vec();
    bytes.extend(width.to_le_bytes());
    bytes.extend(height.to_le_bytes());
    bytes
}

#[test]
fn a_text_counts_as_tiktoken_does() {
    for (text, in_o200k, in_cl100k) in COUNTS {
        assert_eq!(count(Method::O200k, text.as_bytes()), in_o200k, "{text:?}");
        assert_eq!(
            count(Method::Cl100k, text.as_bytes()),
            in_cl100k,
            "{text:?}"
        );
    }
    for method in Method::ALL {
        assert!(count(method, b"\xff") > 0);
        assert!(count(method, &[0x80; 100]) >= 10);
    }
    let replaced = "a\u{fffd}\u{fffd}b".as_bytes();
    assert_eq!(
        count(Method::O200k, b"a\xff\xfeb"),
        count(Method::O200k, replaced)
    );
}

#[test]
fn an_estimate_is_off_by_no_more_than_stated_and_grows_with_the_text() {
    for (text, percent) in SAMPLES {
        let exact = count(Method::O200k, text.as_bytes());
        let about = count(Method::Estimate, text.as_bytes());
        let off = about.abs_diff(exact) * 100 / exact;
        assert!(
            off <= percent,
            "{about} for {exact}, off by {off} %: {text}"
        );
    }
    let text: String = SAMPLES.iter().map(|(text, _)| *text).collect();
    let counts = (0..text.len()).map(|len| count(Method::Estimate, &text.as_bytes()[..len]));
    assert!(counts.collect::<Vec<_>>().is_sorted());
}

#[test]
fn long_runs_count_in_linear_time_on_a_small_stack() {
    crate::stack::on_small_stack(|| {
        for (unit, tokens) in [
            ("a", 125_000),
            (" ", 7_813),
            ("\u{a0}", 62_500),
            ("7", 333_334),
        ] {
            let megabyte = unit.repeat(1_000_000 / unit.len());
            assert_eq!(
                count(Method::O200k, megabyte.as_bytes()),
                tokens,
                "{unit:?}"
            );
        }
    });
}

#[test]
fn an_image_counts_by_its_pixels() {
    for (bytes, tokens) in [
        (png(200, 200), 54),
        (png(1_000, 1_000), 1_334),
        (gif(1_000, 750), 1_000),
        (webp(1_000, 750), 1_000),
        (jpeg(1_000, 750, 0), 1_000),
        (png(1, 1), 1),
        // A large one is scaled down.
        (png(3_136, 1_000), 1_046),
        (png(8_000, 8_000), IMAGE),
        (png(u32::MAX, u32::MAX), IMAGE),
        (png(u32::MAX, 1), 1),
        // The header of a JPEG may be after other data, but not far.
        (jpeg(1_000, 750, 120_000), 1_000),
        (jpeg(1_000, 750, 300_000), IMAGE),
        (b"nothing".to_vec(), IMAGE),
        (png(0, 0), IMAGE),
    ] {
        assert_eq!(image(&bytes), tokens, "{:?}", bytes.get(..40));
    }
    let whole = jpeg(1_000, 750, 0);
    for len in 1..11 {
        assert_eq!(image(&whole[..len]), IMAGE, "{len}");
    }
    assert_eq!(
        media(&[("type", "image"), ("url", "https://example.com/a")]),
        IMAGE
    );
}

#[test]
fn a_file_counts_by_what_it_is() {
    let text = "A line of text.\n".repeat(50_000);
    let expected = count(Method::Estimate, text.as_bytes());
    let counted = file("text/plain; charset=utf-8", "a", text.as_bytes());
    assert!(counted.abs_diff(expected) <= 8, "{counted} {expected}");
    let short = b"{\"a\": 1}";
    assert_eq!(
        file("application/json", "a", short),
        count(Method::Estimate, short)
    );
    assert_eq!(
        file("application/octet-stream", "A.JSON", short),
        count(Method::Estimate, short)
    );

    let pdf =
        b"%PDF-1.4 <</Type /Pages/Count 3>> <</Type/Page>> <</Type /Page /X 1>> <</Type\n/Page\n>>";
    for (media_type, name, bytes, tokens) in [
        ("application/pdf", "a", &pdf[..], 3 * PAGE),
        ("application/octet-stream", "report.PDF", pdf, 3 * PAGE),
        ("application/pdf", "a", b"%PDF-1.7 /Typ", PAGE),
        ("application/pdf", "a", &[0x80; 120_000], 6 * PAGE),
        ("application/zip", "a", b"PK", PAGE),
        ("application/octet-stream", "notes", b"PK", PAGE),
        ("image/png", "a", &png(1_000, 750), 1_000),
        // By what they are, not by what they say.
        ("application/pdf", "a", &png(1_000, 750), 1_000),
        ("application/octet-stream", "a", &png(1_000, 750), 1_000),
        ("image/png", "a", pdf, 3 * PAGE),
        ("text/plain", "a", pdf, 3 * PAGE),
    ] {
        assert_eq!(file(media_type, name, bytes), tokens, "{media_type} {name}");
    }
    let page = b"<!doctype html><p>Not found</p>";
    let data = STANDARD.encode(page);
    let image = [
        ("type", "image"),
        ("media_type", "image/png"),
        ("data", &data),
    ];
    assert_eq!(media(&image), count(Method::Estimate, page));
    let elsewhere = [
        ("type", "file"),
        ("media_type", "application/pdf"),
        ("url", "https://example.com/a"),
    ];
    assert_eq!(media(&elsewhere), PAGE);
}

#[test]
fn a_page_on_the_edge_of_blocks_counts_once() {
    for before in BLOCK - 40..BLOCK + 4 {
        let mut pdf = vec![0x80; before];
        pdf.extend(b"/Type /Page>>");
        pdf.extend(vec![b' '; BLOCK]);
        assert_eq!(file("application/pdf", "a", &pdf), PAGE, "{before}");
    }
}

proptest! {
    #[test]
    fn no_header_does_harm(
        format in 0_usize..4,
        cut in 0_usize..64,
        changes in prop::collection::vec((0_usize..64, any::<u8>()), 0..8),
    ) {
        let mut bytes = match format {
            0 => png(640, 480),
            1 => jpeg(640, 480, 0),
            2 => gif(640, 480),
            _ => webp(640, 480),
        };
        bytes.truncate(cut.max(4));
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        // Bytes that begin as an audio file does count as a file of which nothing is known.
        prop_assert!((1..=PAGE).contains(&image(&bytes)));
    }
}
