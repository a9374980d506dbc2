pub mod read;
pub mod reasoning;
pub mod write;
