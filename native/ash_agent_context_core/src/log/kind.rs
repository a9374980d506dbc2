//! The kinds of tool calls.

use crate::value::word::words;
use crate::value::Value;

words! {
    /// The form of a call. Every kind has a slot and is answered by the client; the answer goes back in the form of the kind.
    /// A provider that does not know the kind gets a function call.
    #[derive(Default)]
    pub enum CallKind {
        /// A function with an object for arguments.
        #[default]
        Function = "function",
        /// A tool with text for arguments, such as a grammar's.
        Custom = "custom",
        /// Shell commands.
        Shell = "shell",
        /// A command of the older shell tool.
        LocalShell = "local_shell",
        /// A change of a file.
        ApplyPatch = "apply_patch",
        /// Actions on a screen, answered with a screenshot.
        Computer = "computer",
        /// The approval that a tool of an MCP server waits for, which the provider itself runs.
        McpApproval = "mcp_approval",
        /// A search for tools that the client carries out.
        ToolSearch = "tool_search",
    }
}

impl CallKind {
    /// Returns true for a function, which every provider knows.
    #[must_use]
    pub const fn is_function(self) -> bool {
        matches!(self, Self::Function)
    }

    /// Returns the tool's name where a call of this kind brings none: there is only one tool of the kind.
    pub(crate) const fn tool(self) -> Option<&'static str> {
        match self {
            Self::Function | Self::Custom | Self::McpApproval => None,
            _ => Some(self.name()),
        }
    }

    /// Returns the kind that a call's field names. A function needs no name, and an unknown name is the application's own.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        let kind = Self::from_name(value.as_name()?)?;
        (!kind.is_function()).then_some(kind)
    }
}
