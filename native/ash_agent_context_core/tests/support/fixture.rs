//! Files that a model writes for the tests of the package.

use std::path::Path;

/// Compares what the model does with what the package replays, or writes it anew where that is asked for.
pub fn compare(name: &str, written: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../test/fixtures")
        .join(name);
    if std::env::var_os("ASH_AGENT_WRITE_FIXTURES").is_some() {
        std::fs::write(&file, written).unwrap();
    }
    let known = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == known,
        "{} is not what the model does: write it with ASH_AGENT_WRITE_FIXTURES=1",
        file.display()
    );
}
