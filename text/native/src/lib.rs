//! Tokenizers and chat templates of the Hugging Face world behind a small C ABI (`onw_text_native.h`).
pub mod bounds;
pub mod ffi;
pub mod jinja_source;
pub mod pyfilters;
pub mod pyjson;
pub mod pymethods;
pub mod pyvalue;
pub mod request;
pub mod result;
pub mod stream;
pub mod template;
pub mod tokenizer;
pub mod tracked;
