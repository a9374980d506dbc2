[
  inputs: [
    "{mix,.formatter}.exs",
    "{bench,config,demo,lib,soak,test}/**/*.{ex,exs}"
  ],
  subdirectories: ["packages/*"]
]
