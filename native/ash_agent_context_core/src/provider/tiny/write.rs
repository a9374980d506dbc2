//! How its messages are written.

use super::Room;
use crate::log::exchange::Exchange;
use crate::log::message::{Message, Role};
use crate::provider::format::Writes;
use crate::provider::writer::{texts, Writer};

impl Writes for Room {
    fn list(&self) -> &'static str {
        "turns"
    }

    fn system_key(&self) -> Option<&'static str> {
        Some("about")
    }

    fn system(&self, system: &Message, out: &mut Writer<'_>) {
        let text = texts(&system.content, out).join(" ");
        out.json.text(&text);
    }

    fn message(&self, message: &Message, out: &mut Writer<'_>) {
        let text = texts(&message.content, out).join(" ");
        let calls = message.calls.iter();
        let calls: Vec<_> = calls
            .map(|call| (out.id(call), out.name(call), out.arguments(call)))
            .collect();
        let who = match message.role {
            Role::Assistant => "you",
            Role::User | Role::System => "me",
        };
        out.json.raw(",");
        out.json.bare_object(|turn| {
            turn.text(who, &text);
            if calls.is_empty() {
                return;
            }
            turn.list("do", |list| {
                for (id, name, arguments) in &calls {
                    list.object(|call| {
                        call.text("id", id)
                            .text("name", name)
                            .raw("with", arguments);
                    });
                }
            });
        });
    }

    fn results(&self, message: &Message, exchange: &Exchange, out: &mut Writer<'_>) {
        for (call, outcome) in exchange.answered_calls(&message.calls) {
            let (id, text) = (out.id(call), out.word_result(outcome));
            out.json.raw(",");
            out.json.bare_object(|turn| {
                turn.text("done", &id).text("says", &text);
            });
        }
    }
}
