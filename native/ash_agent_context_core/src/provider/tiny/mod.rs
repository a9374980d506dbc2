//! A small provider that nobody runs: it shows that a folder and a line in the list are all that a
//! provider takes, and is built for the tests alone.

mod accepts;
mod read;
mod response;
mod usage;
mod write;

/// The room of this provider.
pub(crate) struct Room;

mod tests {
    use crate::context::Context;
    use crate::import::defaults::Defaults;
    use crate::log::provider::Provider;
    use crate::log::Stamp;
    use crate::prices::bill::Report;
    use crate::provider::options::Options;
    use crate::response::{Reading, Response, State};
    use crate::value::time::Time;
    use crate::value::{json, Map, Value};
    use crate::view::change::ChangeKind;

    const AT: Time = Time::UNIX_EPOCH;

    fn read(text: &str) -> Value {
        json::read(text.as_bytes(), 9).unwrap()
    }

    fn encode_sent(context: &Context) -> String {
        let options = Options::new(Provider::Tiny);
        let body = context.encode_request(&options, &Map::default()).unwrap();
        let bytes = body.iter().flat_map(|segment| segment.bytes().to_vec());
        String::from_utf8(bytes.collect()).unwrap()
    }

    fn conversation() -> Context {
        let stamp = || Stamp::at(AT);
        let call = r#"[{"id":"call 1","name":"weather","arguments":{"city":"Rome"}}]"#;
        let ok = Value::Tuple(Box::new([Value::atom("ok"), Value::text("sunny")]));
        let result = Value::Tuple(Box::new([Value::text("call 1"), ok]));
        let context =
            Context::new("c", Value::text("Hi"), Value::text("Be kind"), stamp()).unwrap();
        let context = context.add_assistant_message(Value::text("Let me see"), read(call), stamp());
        let results = Value::List(Box::new([result]));
        context.unwrap().add_tool_results(results, stamp()).unwrap()
    }

    #[test]
    fn a_conversation_is_written_by_the_rules_of_its_room() {
        assert_eq!(
            encode_sent(&conversation()),
            concat!(
                r#"{"about":"Be kind","turns":[{"me":"Hi"},"#,
                r#"{"you":"Let me see","do":[{"id":"call_1","name":"weather","with":{"city":"Rome"}}]},"#,
                r#"{"done":"call_1","says":"sunny"}]}"#
            )
        );
    }

    #[test]
    fn what_its_room_changes_is_reported() {
        let report = conversation().request_report(&Options::new(Provider::Tiny));
        let changes = report.unwrap().into_iter().map(|located| located.change);
        let renamed: Vec<_> = changes
            .map(|change| (change.what, change.from, change.to))
            .collect();
        let id = (
            ChangeKind::RenamedId,
            "call 1".to_owned(),
            Some("call_1".to_owned()),
        );
        assert_eq!(renamed, [id.clone(), id]);
    }

    #[test]
    fn a_request_is_read_and_goes_back_as_it_was() {
        let text = encode_sent(&conversation());
        let defaults = Defaults { id: "d", at: AT };
        let imported = Context::from_request(read(&text), Provider::Tiny, defaults).unwrap();
        assert!(imported.repairs.is_empty(), "{:?}", imported.repairs);
        assert_eq!(read(&encode_sent(&imported.context)), read(&text));
        assert_eq!(imported.context.iterations().count(), 2);
    }

    #[test]
    fn its_reports_on_tokens_are_read() {
        let usage = Report::read(&read(r#"{"heard":3,"spoken":4}"#))
            .unwrap()
            .usage;
        assert_eq!((usage.input, usage.output, usage.total), (3, 4, 7));
    }

    #[test]
    fn its_responses_are_read() {
        let reading = Reading::of(Provider::Tiny);
        let lines = b"{\"you\":\"Su\"}\n{\"you\":\"nny\",\"bill\":1}\n";
        let (fed, _) = Response::new(&reading).feed(lines, usize::MAX).unwrap();
        assert_eq!(*fed.state(), State::Complete);
    }

    #[test]
    fn it_is_known_by_its_name_and_stored_with_it() {
        assert_eq!(Provider::from_name("tiny"), Some(Provider::Tiny));
        let defaults = Defaults { id: "d", at: AT };
        let text = encode_sent(&conversation());
        let imported = Context::from_request(read(&text), Provider::Tiny, defaults).unwrap();
        let loaded = Context::from_snapshot(&imported.context.to_snapshot()).unwrap();
        assert_eq!(read(&encode_sent(&loaded)), read(&text));
    }
}

impl crate::provider::format::Constrains for Room {}
