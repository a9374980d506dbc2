//! Words of the core as atoms, and back: each word stands here once, and no word is left out, for the
//! compiler counts them.

use ash_agent_context_core::{
    CallKind, Cause, ChangeKind, Check, Due, FactKind, FactState, Fate, Look, Method, Pressure,
    Prompt, Provider, RepairKind, Role, ShorteningKind, Status, Thinking,
};
use rustler::{Atom, Env, Term};

use crate::atoms;
use crate::encode::ToTerm;
use crate::error::NifError;

/// A word with an atom for each of its values.
pub trait Word: Sized + Copy + 'static {
    /// Its atom.
    fn atom(self) -> Atom;

    /// The values that Elixir may give.
    const GIVEN: &'static [Self];

    /// The value of an atom.
    fn of(atom: Atom) -> Result<Self, NifError> {
        let found = Self::GIVEN.iter().find(|word| word.atom() == atom);
        found.copied().ok_or(NifError::BadArg)
    }
}

macro_rules! words {
    ($($word:ident { $($value:ident => $atom:ident,)* } given $given:expr;)*) => {
        $(impl Word for $word {
            const GIVEN: &'static [Self] = $given;

            fn atom(self) -> Atom {
                match self {
                    $(Self::$value => atoms::$atom(),)*
                }
            }
        }

        impl ToTerm for $word {
            fn to_term<'a>(&self, env: Env<'a>) -> Term<'a> {
                self.atom().to_term(env)
            }
        })*
    };
}

words! {
    Role {
        System => system,
        User => user,
        Assistant => assistant,
    } given &[];

    Provider {
        Anthropic => anthropic,
        OpenAiChat => openai_chat,
        OpenAiResponses => openai_responses,
        Gemini => gemini,
        Bedrock => bedrock,
        Ollama => ollama,
        Mistral => mistral,
    } given &Self::ALL;

    CallKind {
        Function => function,
        Custom => custom,
        Shell => shell,
        LocalShell => local_shell,
        ApplyPatch => apply_patch,
        Computer => computer,
        McpApproval => mcp_approval,
        ToolSearch => tool_search,
    } given &[];

    Status {
        Ok => ok,
        Error => error,
        Interrupted => interrupted,
        Cancelled => cancelled,
        Denied => denied,
        Unknown => unknown,
    } given &[];

    Thinking {
        Drop => drop,
        Text => text,
    } given &[Self::Drop, Self::Text];

    Prompt {
        Full => full,
        Continuation => continuation,
        Message => message,
    } given &[Self::Full, Self::Continuation, Self::Message];

    Method {
        Estimate => estimate,
        O200k => o200k_base,
        Cl100k => cl100k_base,
    } given &Self::ALL;

    Check {
        Nothing => nothing,
        Append => append,
        Refuse => refuse,
        Hide => hide,
    } given &[Self::Nothing, Self::Append, Self::Refuse, Self::Hide];

    Fate {
        Summarized => summarized,
        Cleared => cleared,
        Hidden => hidden,
    } given &[];

    Cause {
        Model => model,
        Tools => tools,
        Output => output,
        SystemPrompt => system_prompt,
        Block => block,
        Fields => fields,
        Hidden => hidden,
        Summarized => summarized,
        Cleared => cleared,
        Shortened => shortened,
        Masked => masked,
        Other => other,
        Rewound => rewound,
        LookBack => look_back,
        Expired => expired,
    } given &[];

    Due {
        Paid => paid,
        Cold => cold,
        Broken => broken,
        Window => window,
    } given &[];

    Pressure {
        Overflow => context_overflow,
        Window => window,
    } given &Self::ALL;

    ShorteningKind {
        Cleared => cleared,
        Hidden => hidden,
        Summarized => summarized,
    } given &Self::ALL;

    FactKind {
        Path => path,
        Address => address,
        Id => id,
        Number => number,
        Error => error,
        ExitCode => exit_code,
        Name => name,
        Decision => decision,
    } given &[];

    FactState {
        Visible => visible,
        Recall => recall,
        Masked => masked,
        Gone => gone,
    } given &[];

    Look {
        Whole => whole,
        Shortened => shortened,
        Cleared => cleared,
        Summarized => summarized,
        Hidden => hidden,
    } given &[];

    RepairKind {
        DroppedEmptyMessage => dropped_empty_message,
        DroppedDuplicateResult => dropped_duplicate_result,
        DroppedOrphanResult => dropped_orphan_result,
        MovedResult => moved_result,
        RenamedCall => renamed_call,
        SynthesisedResult => synthesised_result,
    } given &[];

    ChangeKind {
        RenamedId => renamed_id,
        RenamedTool => renamed_tool,
        WrappedArguments => wrapped_arguments,
        ThinkingToText => thinking_to_text,
        DroppedThinking => dropped_thinking,
        DroppedPart => dropped_part,
        DroppedBlankText => dropped_blank_text,
        ReplacedBytes => replaced_bytes,
        MovedPart => moved_part,
        MovedCall => moved_call,
        HiddenIterations => hidden_iterations,
        SummarizedIterations => summarized_iterations,
        ClearedResult => cleared_result,
        ShortenedResult => shortened_result,
        MaskedText => masked_text,
        PartToText => part_to_text,
        DroppedMessage => dropped_message,
        CallToFunction => call_to_function,
        AddedMessage => added_message,
    } given &[];
}
