//! A byte that names a provider, or none, and a request's body, or a list of messages.

#![no_main]

use ash_agent_context_core::{
    json, Context, Imported, Options, Provider, Stamp, Value, BODY_DEPTH,
};
use ash_agent_context_fuzz::{at, defaults, laws};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, body)) = bytes.split_first() else {
        return;
    };
    // The digits 0 to 6 are the providers in their order, 7 is a list of messages.
    let provider = Provider::ALL.get(usize::from(choice % 8)).copied();
    let imported = match provider {
        Some(provider) => Context::from_request(Value::Binary(body.into()), provider, defaults()),
        None => json::read(body, BODY_DEPTH)
            .and_then(|messages| Context::from_messages(messages, defaults())),
    };
    let Ok(imported) = imported else {
        return;
    };
    laws::check(&imported.context);
    let stamp = Stamp::at(at(1));
    let context = imported.context.interrupt(&Value::text("stop"), stamp);
    for provider in Provider::ALL {
        comes_back(&context, provider);
    }
});

/// What a provider is sent is a history that needs no repair, and is sent again as it was.
fn comes_back(context: &Context, provider: Provider) {
    let options = Options::new(provider);
    let Some(body) = laws::sent_well(context, &options) else {
        return;
    };
    let text = String::from_utf8_lossy(&body);
    let again = Context::from_request(Value::Binary(body.clone().into()), provider, defaults())
        .unwrap_or_else(|error| panic!("{provider:?}: {error} in {text}"));
    let Imported {
        context,
        repairs,
        rest,
    } = again;
    assert_eq!(repairs, [], "{provider:?}: {text}");
    assert!(rest.is_empty(), "{provider:?}: {text}");
    if context.count_all_messages() == usize::from(context.system().is_some()) {
        return; // a system message among others has become the system prompt: there is nothing else to send
    }
    let sent = laws::sent(&context, &options)
        .unwrap_or_else(|error| panic!("{provider:?}: {error} in {text}"));
    assert_eq!(in_order(&sent), in_order(&body), "{provider:?}: {text}");
}

/// The same JSON with its keys in order.
fn in_order(text: &[u8]) -> String {
    json::write(&json::read(text, BODY_DEPTH).unwrap())
}
