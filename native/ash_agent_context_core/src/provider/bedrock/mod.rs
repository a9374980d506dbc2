pub mod formats;
pub mod read;
pub mod write;
