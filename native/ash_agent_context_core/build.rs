//! Writes the vocabularies of OpenAI's tokenizers in a small form: the tokens in their order, each
//! as its length and its bytes.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "exact_tokens")]
    vocabularies()?;
    Ok(())
}

#[cfg(feature = "exact_tokens")]
fn vocabularies() -> Result<(), Box<dyn Error>> {
    use std::path::Path;
    use std::{env, fs};

    let folder = env::var("OUT_DIR")?;
    let folder = Path::new(&folder);
    fs::write(
        folder.join("o200k_base"),
        tokens(&tiktoken_rs::o200k_base()?)?,
    )?;
    fs::write(
        folder.join("cl100k_base"),
        tokens(&tiktoken_rs::cl100k_base()?)?,
    )?;
    Ok(())
}

/// The tokens without the special ones, which come after a gap.
#[cfg(feature = "exact_tokens")]
fn tokens(vocabulary: &tiktoken_rs::CoreBPE) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut all = Vec::new();
    let tokens = (0..).map_while(|id| vocabulary.decode_bytes(&[id]).ok());
    for token in tokens {
        all.push(u8::try_from(token.len())?);
        all.extend(token);
    }
    Ok(all)
}
