pub mod calls;
pub mod read;
pub mod write;
