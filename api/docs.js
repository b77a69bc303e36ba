"use strict";
// Examples name the server that the page came from.
for (const pre of document.querySelectorAll(".call pre")) {
  pre.textContent = pre.textContent.replace(/https?:\/\/127\.0\.0\.1:8082/, location.origin);
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(pre.textContent);
      button.textContent = "copied";
    } catch {
      const range = document.createRange();
      range.selectNodeContents(pre);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      button.textContent = "selected";
    }
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
  pre.parentElement.append(button);
}
const filter = document.querySelector("nav input");
filter.addEventListener("input", () => {
  const words = filter.value.toLowerCase().split(/\s+/);
  for (const item of document.querySelectorAll("nav li")) {
    const text = item.textContent.toLowerCase();
    item.hidden = !words.every((word) => text.includes(word));
  }
});
